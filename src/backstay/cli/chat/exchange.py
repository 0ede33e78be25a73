"""The operations that a chat needs, implemented by a database (`direct`) and by a server (`remote`)."""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

import msgspec

from backstay.cli.session_names import MANY, is_whole, list_number, numbered, only, prefix_of
from backstay.model.addresses.address import Address
from backstay.model.content import Attachment
from backstay.model.event import Event
from backstay.model.ids import MessageId, SessionId, TurnId, check_session_id
from backstay.model.message import Message
from backstay.model.schedules.schedule import Schedule
from backstay.model.search.results import SearchPage
from backstay.model.session import SessionInfo
from backstay.model.turn import TurnInfo
from backstay.model.window import Window

Busy = Literal["enqueue", "steer"]


class Disconnected(msgspec.Struct, frozen=True):
    """The events cannot be read now; reading will resume where it stopped."""

    reason: str


class Reconnected(msgspec.Struct, frozen=True):
    """The events can be read again."""


ChatEvent = Event | Disconnected | Reconnected


class Exchange(Protocol):
    """Access to sessions. An operation is durable when it returns; `follow` yields its events, in one order for all."""

    @property
    def name(self) -> str:
        """The database or server, as shown to a person."""
        ...

    # --- sessions ---------------------------------------------------------------------------------------------------

    async def session(self, session: SessionId) -> SessionInfo:
        """Return the session as it is now."""
        ...

    async def resolve(self, address: Address) -> SessionInfo:
        """Return the open session of the address; create it if there is none."""
        ...

    async def create(self, address: Address | None) -> SessionInfo:
        """Create a session and point the address to it."""
        ...

    async def point(self, address: Address, session: SessionId) -> SessionInfo:
        """Point the address to this session."""
        ...

    async def sessions(self, limit: int) -> tuple[SessionInfo, ...]:
        """Return the newest sessions."""
        ...

    async def beginning_with(self, prefix: str, limit: int) -> tuple[SessionInfo, ...]:
        """Return sessions whose ids start with the prefix; a server searches only the newest sessions."""
        ...

    async def ending_with(self, letters: str, limit: int) -> tuple[SessionInfo, ...]:
        """Return sessions whose ids end with the letters; a server searches only the newest sessions."""
        ...

    async def search(self, text: str) -> SearchPage:
        """Return the messages that match, best first."""
        ...

    # --- turns ------------------------------------------------------------------------------------------------------

    async def upload(self, path: Path) -> Attachment:
        """Upload a file, which the next message can carry."""
        ...

    async def send(
        self, session: SessionId, text: str, *, request_id: str, if_busy: Busy, files: Sequence[Attachment] = ()
    ) -> TurnId:
        """Send a message with uploaded files. Retried under its request id until it is accepted; accepted only once."""
        ...

    async def retry(self, session: SessionId, *, request_id: str) -> TurnId:
        """Run the last input again."""
        ...

    async def edit(self, session: SessionId, message: MessageId, text: str, *, request_id: str) -> TurnId:
        """Replace an earlier message and run a turn on it."""
        ...

    async def cancel(self, turn: TurnId) -> None:
        """Cancel a turn, in any process; return when it has ended."""
        ...

    async def decide(self, turn: TurnId, call: str, *, approved: bool) -> None:
        """Approve or deny a tool call."""
        ...

    async def rerun(self, turn: TurnId, call: str) -> None:
        """Allow a tool call of an interrupted turn that may have run to run again."""
        ...

    async def resume(self, turn: TurnId) -> None:
        """Continue an interrupted turn."""
        ...

    # --- changing the history ---------------------------------------------------------------------------------------

    async def undo(self, session: SessionId) -> None:
        """Undo the last turn."""
        ...

    async def redo(self, session: SessionId) -> None:
        """Restore the turn that the last undo removed."""
        ...

    async def fork(self, session: SessionId) -> SessionInfo:
        """Create a new session from the ended turns of this one."""
        ...

    async def compact(self, session: SessionId, focus: str) -> None:
        """Compact the window; `focus` names the topic that the summary should keep."""
        ...

    async def rename(self, session: SessionId, title: str) -> None:
        """Set the title."""
        ...

    async def remind(self, session: SessionId, when: str, text: str, *, request_id: str) -> Schedule:
        """Create a schedule for the session, in the time zone of this machine."""
        ...

    # --- reading ----------------------------------------------------------------------------------------------------

    async def messages(self, session: SessionId, last: int) -> tuple[Message, ...]:
        """Return the last messages of the session's window."""
        ...

    async def turn(self, turn: TurnId) -> TurnInfo:
        """Return a turn as it is now."""
        ...

    async def lineage(self, session: SessionId) -> tuple[Window, ...]:
        """Return all windows, oldest first."""
        ...

    async def export_to(self, session: SessionId, file: BinaryIO) -> None:
        """Write an export of the session to a file."""
        ...

    def follow(self, session: SessionId, after: int) -> AsyncGenerator[ChatEvent, None]:
        """Yield the events after this number, then live. No event is missed or repeated, also after a lost connection.

        Ends when the session is deleted. Raises `HistoryChanged` if events that were yielded no longer exist.
        """
        ...


async def find_session(exchange: Exchange, name: str) -> SessionInfo:
    """Return the session with this id, first or last letters of an id, or place in the list.

    Raises `NotFound` if no session or several match.
    """
    if is_whole(name):
        return await exchange.session(check_session_id(name))
    number = list_number(name)
    if number is not None:
        return numbered(name, await exchange.sessions(number))
    found = await exchange.beginning_with(prefix_of(name), MANY) if name else ()
    return only(name, found or await exchange.ending_with(name, MANY))
