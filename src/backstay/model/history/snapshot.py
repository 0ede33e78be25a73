"""A snapshot of a part of a session at one event, to be shown and then followed from there."""

import msgspec

from backstay.model.content import Part
from backstay.model.ids import MessageId, SessionId, WindowId
from backstay.model.marks import Marks
from backstay.model.message import Message, NewMessage
from backstay.model.session import SessionInfo
from backstay.model.turn import ToolCallRecord, TurnInfo


class SessionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one window and the state of their turns, read at one moment: after `session.last_event`.

    Attributes:
        session: The session at that moment.
        window: The window of the messages.
        length: The number of messages in the window.
        messages: The requested messages.
        turns: The turns of these messages, and the running one.
        calls: The tool calls of these turns.
        waiting: The waiting turns.
        output: The output of the running turn so far.
        pending_steering: Steering inputs that the running turn took; they follow after the results of its open calls.
        summarises: The window whose first `summarises_until` messages are replaced by the summary at the start.
        summarises_until: See `summarises`.
    """

    session: SessionInfo
    window: WindowId
    length: int
    messages: tuple[Message, ...]
    turns: tuple[TurnInfo, ...]
    calls: tuple[ToolCallRecord, ...]
    waiting: tuple[TurnInfo, ...]
    output: tuple[NewMessage, ...]
    pending_steering: tuple[tuple[Part, ...], ...] = ()
    summarises: WindowId | None = None
    summarises_until: int | None = None


class SnapshotQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages to read: the `last` ones before a position of a window, or those around a message."""

    window: WindowId | None = None
    before: int | None = None
    around: MessageId | None = None
    last: int = 100


class SessionBadge(msgspec.Struct, frozen=True, kw_only=True):
    """Data of a session for a list, besides the session itself.

    Attributes:
        session: The session.
        marks: The owner's draft and read position.
        asks: Whether a tool call waits for a person's approval.
        outcome: How the last turn ended.
    """

    session: SessionId
    marks: Marks
    asks: bool
    outcome: str | None
