"""Creates agents from specifications: a Python attribute, the URL of a model, or a program that speaks ACP."""

import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import ModuleType

from backstay.agents.adapters import AgentLike, agent_factory, live
from backstay.agents.agent_traceback import agent_traceback
from backstay.agents.provider.anthropic.anthropic_agent import AnthropicAgent
from backstay.agents.provider.gemini.gemini_agent import GeminiAgent
from backstay.agents.provider.openai_compatible import OpenAICompatible
from backstay.agents.roots import AgentRoots
from backstay.agents.scripted.scripted_agent import ScriptedAgent
from backstay.agents.selection.discovery import ACP, acp_command, acp_variables
from backstay.agents.selection.providers import Api, api_of, key_for
from backstay.agents.tool_servers.tool_server import mcp
from backstay.config import SCRIPTED, Settings
from backstay.errors import ConfigError

_USUAL = Settings()
# The media types that the models of a provider read, by its URL. For any other, the settings name them.
_ACCEPTS: dict[str, tuple[str, ...]] = {
    "https://api.openai.com/v1": ("image/*", "application/pdf"),
    "https://openrouter.ai/api/v1": ("image/*", "application/pdf"),
}
_HINT = (
    "Write scripted, module:attribute, https://host/v1#model, anthropic+https://host#model, gemini+https://host#model, "
    "or acp:program; put name= before it to serve several."
)


def _no_directories() -> AgentRoots:
    return AgentRoots(())


def parse_agent_specs(
    specs: Iterable[str],
    settings: Settings = _USUAL,
    *,
    demo: bool = False,
    roots: Callable[[], AgentRoots] = _no_directories,
) -> dict[str, AgentLike]:
    """Create the agents, by name.

    A specification is `[name=]` and `module:attribute`, `url#model`, `acp:command` or `scripted`. A URL is that of a
    Chat Completions API, or with `anthropic+` or `gemini+` before it, of one of these APIs. Without any
    specification there is one scripted agent. With `demo`, the scripted agent may crash its process and has a tool for
    payments.

    Args:
        specs: The specifications.
        settings: Where programs may work, and what they may do.
        demo: Whether this is a demo.
        roots: Returns the directories in which ACP agents may work; called only for such agents.

    Raises:
        ConfigError: A specification is invalid, or two agents have one name.
    """
    found: dict[str, AgentLike] = {}
    for spec in specs:
        name, agent = _one(spec, settings, roots, demo=demo)
        if name in found:
            raise ConfigError(
                f"two agents have the name {name}", hint="Give each a name: --agent name=module:attribute"
            )
        found[name] = agent
    return found or {"default": _scripted(demo=demo)}


def _one(spec: str, settings: Settings, roots: Callable[[], AgentRoots], *, demo: bool) -> tuple[str, AgentLike]:
    name, named, rest = spec.partition("=")
    if not named or ":" in name or "/" in name:
        name, rest = "default", spec
    agent = _agent(rest, settings, roots, demo=demo)
    agent_factory(agent)  # raises if it is not an agent
    return name, agent


def _agent(spec: str, settings: Settings, roots: Callable[[], AgentRoots], *, demo: bool) -> AgentLike:
    if spec == SCRIPTED:
        return _scripted(demo=demo)
    if spec.startswith(ACP):
        return _program(spec, settings, roots())
    found = api_of(spec)
    return _attribute(spec) if found is None else _model(*found, settings)


def _scripted(*, demo: bool) -> AgentLike:
    return ScriptedAgent(pace=0.05, allow_crash=demo, payments=[] if demo else None)


def _model(api: Api, url: str, settings: Settings) -> AgentLike:
    base, found, model = url.partition("#")
    if not found or not model:
        raise ConfigError("the URL of the agent contains no model name", hint=_HINT)
    key = key_for(base, os.environ, api)
    tools = [
        mcp(server, approval=settings.agent_permission, pass_environment=_for_programs(server, settings))
        for server in settings.agent_tools
    ]
    match api:
        case "anthropic+":
            return AnthropicAgent(model, key, base_url=base, tools=tools)
        case "gemini+":
            return GeminiAgent(model, key, base_url=base, tools=tools)
        case "":
            accepts = settings.agent_accepts or _ACCEPTS.get(base.rstrip("/"), ())
            return OpenAICompatible(base, model, key, accepts=accepts, tools=tools)


def _for_programs(server: str, settings: Settings) -> tuple[str, ...]:
    return () if server.startswith(("http://", "https://")) else settings.agent_environment


def _program(spec: str, settings: Settings, roots: AgentRoots) -> AgentLike:
    # Imported here because it is an optional extra, and slower to import than everything else together.
    from backstay.agents.acp import AcpAgent  # noqa: PLC0415

    command = acp_command(spec, os.environ.get("PATH"))
    directory, permission = settings.agent_directory or None, settings.agent_permission
    names = (*acp_variables(spec), *settings.agent_environment)
    make = partial(AcpAgent, command, cwd=directory, roots=roots, permission=permission, pass_environment=names)
    make()  # raises if the program or directory does not exist; starts nothing
    return live(make, has_process=True, configuration=[*command, directory, permission, *roots.paths, *names])


def _attribute(spec: str) -> AgentLike:
    module, found, attribute = spec.partition(":")
    if not found or not module or not attribute:
        raise ConfigError(f"{spec!r} is not an agent", hint=_HINT)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does: agents are often in the current directory
    try:
        agent: AgentLike = attrgetter(attribute)(_imported(spec, module))
    except AttributeError as error:
        raise ConfigError(f"{spec!r} cannot be loaded: {error}", hint=_HINT) from error
    return agent


def _imported(spec: str, module: str) -> ModuleType:
    """Import a user's module; raise `ConfigError` with their own traceback if it cannot be imported."""
    try:
        return import_module(module)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise ConfigError(f"{spec!r} cannot be loaded: {error}", hint=_HINT) from error
        raise ConfigError(
            f"{spec!r} cannot be loaded:\n{agent_traceback(error)}", hint=f"Correct the module {module}, and try again."
        ) from error
