"""Adapters that turn functions, classes and objects into agents."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import NamedTuple, cast

from backstay.agents.blocking_agent import BlockingAgent, GeneratorFunction
from backstay.agents.port import Agent, AgentTurn
from backstay.errors import AgentFailed, ConfigError
from backstay.model.codec import content_hash
from backstay.model.content import Body, Json

AgentFunction = Callable[[AgentTurn], AsyncIterator[Body]]
Make = Callable[[], Agent | Awaitable[Agent]]
Configuration = Json | Callable[[], Json]


class Live(NamedTuple):
    """How to create a live agent for a session, and its configuration; a changed configuration creates a new agent."""

    make: Make
    configuration: Configuration = None
    has_process: bool = False


AgentLike = AgentFunction | GeneratorFunction | Agent | type[Agent] | Live


def live(make: Make, *, configuration: Configuration = None, has_process: bool = False) -> Live:
    """Declare an agent that is created once for each session and kept between its turns.

    Args:
        make: Returns a new agent, or an awaitable of one: a class or a function.
        configuration: The ingredients of the agent (model, tools, system prompt) as JSON, or a function that returns it
            and is called before every turn. An agent with another configuration is closed and created again.
        has_process: Whether each agent runs a process of its own. `OwnerLimits.agent_processes` limits these.

    Returns:
        A declaration to pass to an app in place of an agent.

    Raises:
        ConfigError: `make` is not callable.
    """
    if not callable(make):
        raise ConfigError(f"{make!r} cannot create agents", hint="Pass a class, or a function that returns an agent.")
    return Live(make, configuration, has_process)


class FunctionAgent:
    """An async generator function as an agent without memory between turns."""

    def __init__(self, function: AgentFunction) -> None:
        self._function = function

    def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        """Answer one turn."""
        return self._function(turn)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""


class AgentFactory:
    """Provides the agent for a turn: `shared` serves every turn; without it, `make` creates one for each session."""

    def __init__(self, live: Live | None = None, shared: Agent | None = None) -> None:
        self._live, self.shared = live, shared

    @property
    def has_process(self) -> bool:
        """Whether each agent that is created runs a process of its own."""
        return self._live is not None and self._live.has_process

    async def make(self) -> Agent:
        """Create an agent.

        Raises:
            ConfigError: The result is not an agent, or a shared agent serves every turn.
        """
        if self._live is None:
            raise ConfigError("a shared agent serves every turn and is not created again for one")
        made = self._live.make()
        if inspect.isawaitable(made):
            made = await made
        if not isinstance(made, Agent):
            raise ConfigError(f"{made!r} is not an agent", hint="It needs stream(turn) and aclose().")
        return made

    def fingerprint(self) -> bytes:
        """Return a hash of the current configuration."""
        configuration = None if self._live is None else self._live.configuration
        return content_hash(configuration() if callable(configuration) else configuration)


def output_of(agent: Agent, turn: AgentTurn) -> AsyncIterator[Body]:
    """Start the output stream of an agent; raise `AgentFailed` if `stream` does not return an async iterator."""
    words = agent.stream(turn)
    if isinstance(words, AsyncIterator):
        return words
    if isinstance(words, Coroutine):
        words.close()
    raise AgentFailed(
        "stream() did not return an async iterator", hint="Write it as an async generator: `async def` with `yield`."
    )


def agent_factory(agent: AgentLike) -> AgentFactory:
    """Return a factory: a class or `live(…)` makes one agent for each session, all else serves every turn.

    Raises:
        ConfigError: The value is not an agent and cannot be adapted to one.
    """
    if isinstance(agent, Live):
        return AgentFactory(agent)
    if inspect.isclass(agent) and hasattr(agent, "stream"):
        return AgentFactory(Live(cast(Make, agent)))  # whether its objects are agents is checked when one is created
    return AgentFactory(shared=_shared(agent))


def _shared(agent: AgentLike) -> Agent:
    if inspect.isasyncgenfunction(agent):
        return FunctionAgent(agent)
    if inspect.isgeneratorfunction(agent):
        return BlockingAgent.of_generator(agent)
    if isinstance(agent, Agent):
        return agent
    raise ConfigError(
        f"{agent!r} is not an agent",
        hint="Pass an async generator function of a turn, or an object with stream(turn) and aclose().",
    )
