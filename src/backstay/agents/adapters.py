"""Adapters: whatever people call an agent becomes one."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import NamedTuple, cast

from backstay.agents.blocking import BlockingAgent, GeneratorFunction
from backstay.agents.port import Agent, AgentTurn
from backstay.errors import AgentFailed, ConfigError
from backstay.model.codec import content_hash
from backstay.model.content import Body, Json

AgentFunction = Callable[[AgentTurn], AsyncIterator[Body]]
Make = Callable[[], Agent | Awaitable[Agent]]
Configuration = Json | Callable[[], Json]


class Live(NamedTuple):
    """How a live agent is made for a session, and what it is made of: when that changes, it is made anew."""

    make: Make
    configuration: Configuration = None


AgentLike = AgentFunction | GeneratorFunction | Agent | type[Agent] | Live


def live(make: Make, *, configuration: Configuration = None) -> Live:
    """An agent that is made once for each session and kept between its turns.

    `make` gives a new one, or awaits it. `configuration` says what it is made of (model, tools, system prompt), or is
    asked for it before every turn: an agent made of something else is closed and made anew.
    """
    if not callable(make):
        raise ConfigError(f"{make!r} makes no agents", hint="Pass a class, or a function that returns an agent.")
    return Live(make, configuration)


class FunctionAgent:
    """An async generator function as an agent: it keeps nothing between turns."""

    def __init__(self, function: AgentFunction) -> None:
        self._function = function

    def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        """Answer one turn."""
        return self._function(turn)

    async def aclose(self) -> None:
        """Nothing is held."""


class Maker:
    """How the agent for a turn is had: `shared` serves every turn; without it, one is made for each session."""

    def __init__(self, live: Live | None = None, shared: Agent | None = None) -> None:
        self._live, self.shared = live, shared

    async def make(self) -> Agent:
        """A new agent, which must be one."""
        if self._live is None:
            raise ConfigError("an agent that serves every turn is not made")
        made = self._live.make()
        if inspect.isawaitable(made):
            made = await made
        if not isinstance(made, Agent):
            raise ConfigError(f"{made!r} is no agent", hint="It needs stream(turn) and aclose().")
        return made

    def fingerprint(self) -> bytes:
        """Stands for what an agent made now would be made of."""
        configuration = None if self._live is None else self._live.configuration
        return content_hash(configuration() if callable(configuration) else configuration)


def words_of(agent: Agent, turn: AgentTurn) -> AsyncIterator[Body]:
    """What an agent says in a turn, which must be a stream."""
    words = agent.stream(turn)
    if isinstance(words, AsyncIterator):
        return words
    if isinstance(words, Coroutine):
        words.close()
    raise AgentFailed(
        "stream() gave no async iterator", hint="Write it as an async generator: `async def` with `yield`."
    )


def maker_of(agent: AgentLike) -> Maker:
    """What gives the agent for a turn: a class or `live(…)` makes one for each session, anything else serves all."""
    if isinstance(agent, Live):
        return Maker(agent)
    if inspect.isclass(agent) and hasattr(agent, "stream"):
        return Maker(Live(cast(Make, agent)))  # whether it makes agents is seen when it does
    return Maker(shared=_shared(agent))


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
