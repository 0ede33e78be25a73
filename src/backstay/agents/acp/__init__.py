"""Agents that speak the Agent Client Protocol (ACP): external programs, each in a process of its own."""

from backstay.errors import ConfigError

try:
    from backstay.agents.acp.agent import AcpAgent
    from backstay.agents.acp.permission import Policy
    from backstay.agents.programs.environment import PASSED_ON
except ModuleNotFoundError as error:
    if error.name is None or error.name.split(".")[0] not in ("acp", "pydantic"):
        raise
    raise ConfigError(
        f"an agent that speaks ACP needs {error.name}, which is not installed",
        hint="Install the extra: pip install 'backstay[acp]'",
    ) from error

__all__ = ["PASSED_ON", "AcpAgent", "Policy"]
