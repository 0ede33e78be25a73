"""Adapters: whatever people call an agent becomes one."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from backstay.agents.blocking import BlockingAgent, BlockingTurn
from backstay.agents.port import Agent, AgentTurn
from backstay.errors import ConfigError
from backstay.model.content import Body

AgentFunction = Callable[[AgentTurn], AsyncIterator[Body]]
BlockingFunction = Callable[[BlockingTurn], Iterator[Body]]
AgentLike = AgentFunction | BlockingFunction | Agent | type[Agent]
Builder = Callable[[], Agent]


class FunctionAgent:
    """An async generator function as an agent: it keeps nothing between turns."""

    def __init__(self, function: AgentFunction) -> None:
        self._function = function

    def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        return self._function(turn)

    async def aclose(self) -> None:
        """Nothing is held."""


def builder_of(agent: AgentLike) -> Builder:
    """What makes the agent for a turn: a class is made anew, anything else serves every turn."""
    if inspect.isasyncgenfunction(agent):
        made: Agent = FunctionAgent(agent)
        return lambda: made
    if inspect.isgeneratorfunction(agent):
        return lambda: BlockingAgent(agent)
    if inspect.isclass(agent) and hasattr(agent, "stream"):
        return _closing_builder(agent)
    if isinstance(agent, Agent):
        return lambda: agent
    raise ConfigError(
        f"{agent!r} is no agent",
        hint="Pass an async generator function of a turn, or an object with stream(turn) and aclose().",
    )


def _closing_builder(kind: Callable[..., Any]) -> Builder:  # Any: the class is only known to have `stream`
    def build() -> Agent:
        made = kind()
        if not isinstance(made, Agent):
            raise ConfigError(f"{kind!r} is no agent", hint="It needs stream(turn) and aclose().")
        return made

    return build
