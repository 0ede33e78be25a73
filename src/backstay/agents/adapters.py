"""Adapters: whatever people call an agent becomes one."""

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from backstay.agents.blocking import BlockingAgent, GeneratorFunction
from backstay.agents.port import Agent, AgentTurn
from backstay.errors import ConfigError
from backstay.model.content import Body

AgentFunction = Callable[[AgentTurn], AsyncIterator[Body]]
AgentLike = AgentFunction | GeneratorFunction | Agent | type[Agent]


class FunctionAgent:
    """An async generator function as an agent: it keeps nothing between turns."""

    def __init__(self, function: AgentFunction) -> None:
        self._function = function

    def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        """Answer one turn."""
        return self._function(turn)

    async def aclose(self) -> None:
        """Nothing is held."""


class Maker(NamedTuple):
    """How the agent for a turn is had: `shared` serves every turn; otherwise one is made, and closed after its turn."""

    make: Callable[[], Agent]
    shared: Agent | None


def maker_of(agent: AgentLike) -> Maker:
    """What gives the agent for a turn: a class is made anew, anything else serves every turn."""
    if inspect.isclass(agent) and hasattr(agent, "stream"):
        return Maker(_making(agent), None)
    shared = _shared(agent)
    return Maker(lambda: shared, shared)


def _shared(agent: AgentLike) -> Agent:
    if inspect.isasyncgenfunction(agent):
        return FunctionAgent(agent)
    if inspect.isgeneratorfunction(agent):
        return BlockingAgent.of_generator(agent)
    if isinstance(agent, Agent):
        return agent
    raise ConfigError(
        f"{agent!r} is no agent",
        hint="Pass an async generator function of a turn, or an object with stream(turn) and aclose().",
    )


def _making(kind: Callable[..., Any]) -> Callable[[], Agent]:  # Any: the class is only known to have `stream`
    def make() -> Agent:
        made = kind()
        if not isinstance(made, Agent):
            raise ConfigError(f"{kind!r} is no agent", hint="It needs stream(turn) and aclose().")
        return made

    return make
