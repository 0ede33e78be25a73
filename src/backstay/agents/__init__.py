"""Agents, which answer turns. An agent sees only the turn that it is given, never the store or the server."""

from typing import TYPE_CHECKING

from backstay.agents.port import Agent, AgentTurn
from backstay.agents.tools import MayHaveRun, Tool, ToolFailed, tool
from backstay.lazy_import import lazy_import

if TYPE_CHECKING:
    from backstay.agents.acp import AcpAgent
    from backstay.agents.adapters import live
    from backstay.agents.blocking_agent import BlockingAgentTurn, callback_agent
    from backstay.agents.directions import Directions, directions_of
    from backstay.agents.provider.openai_compatible import OpenAICompatible
    from backstay.agents.scripted.scripted_agent import ScriptedAgent

__all__ = [
    "AcpAgent",
    "Agent",
    "AgentTurn",
    "BlockingAgentTurn",
    "Directions",
    "MayHaveRun",
    "OpenAICompatible",
    "ScriptedAgent",
    "Tool",
    "ToolFailed",
    "callback_agent",
    "directions_of",
    "live",
    "tool",
]

# Type checkers use the imports above. The agents of other makers need libraries that take long to load.
if not TYPE_CHECKING:
    _PLACES = {
        "AcpAgent": "acp",
        "BlockingAgentTurn": "blocking_agent",
        "Directions": "directions",
        "OpenAICompatible": "provider.openai_compatible",
        "ScriptedAgent": "scripted.scripted_agent",
        "callback_agent": "blocking_agent",
        "directions_of": "directions",
        "live": "adapters",
    }
    __getattr__ = lazy_import(__name__, _PLACES)

    def __dir__() -> list[str]:
        return [*globals(), *_PLACES]
