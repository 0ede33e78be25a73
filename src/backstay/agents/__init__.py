"""Agents, which answer turns. An agent sees only the turn that it is given, never the store or the server."""

from typing import TYPE_CHECKING

from backstay.agents.port import Agent, AgentTurn, CatchesUp, Loads
from backstay.agents.tools import MayHaveRun, Tool, ToolFailed, ToolFile, tool
from backstay.lazy_import import lazy_import
from backstay.model.turn import Steering

if TYPE_CHECKING:
    from backstay.agents.acp import AcpAgent
    from backstay.agents.adapters import AgentLike, live
    from backstay.agents.blocking_agent import BlockingAgentTurn, callback_agent
    from backstay.agents.directions import Directions, directions_of
    from backstay.agents.provider.anthropic.anthropic_agent import AnthropicAgent
    from backstay.agents.provider.gemini.gemini_agent import GeminiAgent
    from backstay.agents.provider.openai_compatible import OpenAICompatible
    from backstay.agents.provider.transport.retry_policy import ProviderBackoff
    from backstay.agents.scripted.scripted_agent import ScriptedAgent
    from backstay.agents.tool_servers.tool_server import ToolServer, mcp

__all__ = [
    "AcpAgent",
    "Agent",
    "AgentLike",
    "AgentTurn",
    "AnthropicAgent",
    "BlockingAgentTurn",
    "CatchesUp",
    "Directions",
    "GeminiAgent",
    "Loads",
    "MayHaveRun",
    "OpenAICompatible",
    "ProviderBackoff",
    "ScriptedAgent",
    "Steering",
    "Tool",
    "ToolFailed",
    "ToolFile",
    "ToolServer",
    "callback_agent",
    "directions_of",
    "live",
    "mcp",
    "tool",
]

# Type checkers use the imports above. The agents of other makers need libraries that take long to load.
if not TYPE_CHECKING:
    _PLACES = {
        "AcpAgent": "acp",
        "AgentLike": "adapters",
        "AnthropicAgent": "provider.anthropic.anthropic_agent",
        "BlockingAgentTurn": "blocking_agent",
        "Directions": "directions",
        "GeminiAgent": "provider.gemini.gemini_agent",
        "OpenAICompatible": "provider.openai_compatible",
        "ProviderBackoff": "provider.transport.retry_policy",
        "ScriptedAgent": "scripted.scripted_agent",
        "ToolServer": "tool_servers.tool_server",
        "callback_agent": "blocking_agent",
        "directions_of": "directions",
        "live": "adapters",
        "mcp": "tool_servers.tool_server",
    }
    __getattr__ = lazy_import(__name__, _PLACES)

    def __dir__() -> list[str]:
        return [*globals(), *_PLACES]
