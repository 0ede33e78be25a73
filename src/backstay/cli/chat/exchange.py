"""The exchange: what a chat needs of the place where sessions are, be it a database or a server."""

from collections.abc import AsyncGenerator
from typing import Literal, Protocol

import msgspec

from backstay.model.address import Address
from backstay.model.event import Event
from backstay.model.export import Export
from backstay.model.ids import MessageId, SessionId, TurnId
from backstay.model.message import Message
from backstay.model.search import SearchPage
from backstay.model.session import Session
from backstay.model.turn import Turn
from backstay.model.window import Window

Busy = Literal["enqueue", "steer"]


class Away(msgspec.Struct, frozen=True):
    """The story cannot be read just now; it goes on where it stopped."""

    reason: str


class Back(msgspec.Struct, frozen=True):
    """The story can be read again."""


Told = Event | Away | Back


class Exchange(Protocol):
    """Everything is durable when it returns. What comes of it is told by `follow`, to all who follow, in one order."""

    @property
    def name(self) -> str:
        """Where this is, for a person."""
        ...

    # --- which session ----------------------------------------------------------------------------------------------

    async def session(self, session: SessionId) -> Session:
        """The session as it is now."""
        ...

    async def resolve(self, address: Address) -> Session:
        """The living session behind the address, made if there is none."""
        ...

    async def create(self, address: Address | None) -> Session:
        """A new session, to which the address leads from now on."""
        ...

    async def point(self, address: Address, session: SessionId) -> Session:
        """Lead the address to this session from now on."""
        ...

    async def sessions(self, limit: int) -> tuple[Session, ...]:
        """The newest sessions."""
        ...

    async def beginning_with(self, prefix: str, limit: int) -> tuple[Session, ...]:
        """Sessions whose ids begin so; a server looks among the newest only."""
        ...

    async def search(self, text: str) -> SearchPage:
        """Messages that match, best first."""
        ...

    # --- talking ----------------------------------------------------------------------------------------------------

    async def send(self, session: SessionId, text: str, *, request_id: str, if_busy: Busy) -> TurnId:
        """Say something. Repeated under its request id until it is known to be accepted, once."""
        ...

    async def retry(self, session: SessionId, *, request_id: str) -> TurnId:
        """Have the last input answered again."""
        ...

    async def edit(self, session: SessionId, message: MessageId, text: str, *, request_id: str) -> TurnId:
        """Say something else in place of an earlier message."""
        ...

    async def cancel(self, turn: TurnId) -> None:
        """Stop a turn, wherever it runs; returns once it has ended."""
        ...

    async def decide(self, turn: TurnId, call: str, *, approved: bool) -> None:
        """Allow or forbid a tool call that asks."""
        ...

    # --- changing one's mind ----------------------------------------------------------------------------------------

    async def undo(self, session: SessionId) -> None:
        """Take the last turn back."""
        ...

    async def redo(self, session: SessionId) -> None:
        """Bring back what the last undo took."""
        ...

    async def fork(self, session: SessionId) -> Session:
        """A new session from the ended turns of this one."""
        ...

    async def compact(self, session: SessionId, focus: str) -> None:
        """Have the past summarised, above all what concerns the focus."""
        ...

    async def rename(self, session: SessionId, title: str) -> None:
        """Give it a title."""
        ...

    # --- reading ----------------------------------------------------------------------------------------------------

    async def messages(self, session: SessionId, last: int) -> tuple[Message, ...]:
        """The last messages of the session's window."""
        ...

    async def turn(self, turn: TurnId) -> Turn:
        """A turn as it is now."""
        ...

    async def lineage(self, session: SessionId) -> tuple[Window, ...]:
        """All windows, oldest first."""
        ...

    async def export(self, session: SessionId) -> Export:
        """All that is known of it."""
        ...

    def follow(self, session: SessionId, after: int) -> AsyncGenerator[Told, None]:
        """The story after an event's number, then live: no event is missed and none told twice, whatever breaks.

        Ends with the session's deletion. `StoryChanged` if what was told no longer exists.
        """
        ...
