"""The port between a turn and the agent that answers it."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol, runtime_checkable

from backstay.agents.tools import Tool
from backstay.model.content import Body, Json
from backstay.model.ids import SessionId, TurnId, WindowId
from backstay.model.message import Message
from backstay.model.search import SearchPage
from backstay.model.turn import Steering


class AgentTurn(Protocol):
    """A turn as its agent sees it."""

    @property
    def id(self) -> TurnId:
        """The turn's id."""
        ...

    @property
    def session(self) -> SessionId:
        """The session it runs in."""
        ...

    @property
    def owner(self) -> str:
        """Whose session it is."""
        ...

    @property
    def window(self) -> WindowId:
        """The window that the session reads now; another one after a compaction in the middle of the turn."""
        ...

    @property
    def input(self) -> Message:
        """What was said to the agent."""
        ...

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history up to and including the input, always valid for a provider: every call has exactly one result."""
        ...

    @property
    def said(self) -> tuple[Message, ...]:
        """What was said in this turn before it was interrupted or compacted; empty in a turn that just begins.

        `load` does not tell it: a live agent remembers it from here, for it is kept as one that knows.
        """
        ...

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked for the turn to stop."""
        ...

    async def steering(self) -> tuple[Steering, ...]:
        """Inputs that arrived for this turn since it last asked. Taken here, they are part of this turn."""
        ...

    async def workspace(self) -> str | None:
        """The directory that the session is about: the path of the workspace address that leads to it.

        None if there is none on this machine, or if addresses of different directories lead to it.
        """
        ...

    async def search(self, text: str, *, limit: int = 5) -> SearchPage:
        """Messages of the person's own sessions that match, best first."""
        ...

    async def call(self, tool: Tool, arguments: Mapping[str, Json]) -> Any:  # Any: whatever JSON the tool returns
        """Run a tool through the ledger: its intent is durable before it runs, its result after.

        The only way to call a tool that keeps the promise never to run it twice unnoticed.
        """
        ...


@runtime_checkable
class Agent(Protocol):
    """Something that answers turns. What it yields is stored and shown at once, and becomes messages at the end."""

    def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        """Answer one turn. Raising ends the turn as failed, keeping what was said."""
        ...

    async def aclose(self) -> None:
        """Let go of whatever the agent holds."""
        ...


@runtime_checkable
class Loads(Protocol):
    """A live agent that is told the history once, when it is built, and not with every turn."""

    async def load(self, messages: tuple[Message, ...]) -> None:
        """Learn what was said before the turn that comes."""
        ...


@runtime_checkable
class CatchesUp(Protocol):
    """A live agent that can be told what others added, instead of being built anew."""

    async def catch_up(self, messages: tuple[Message, ...]) -> None:
        """Learn what others added since this agent last spoke."""
        ...
