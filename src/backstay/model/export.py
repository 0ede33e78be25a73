"""An exported session: all that a store knows of it, as one JSON document that any store can import.

Its owner, its lease and its place in the feed are not part of it: they belong to the store. Messages stand in the
window in which they were said, once; events and segments name them.
"""

from typing import Annotated

import msgspec

from backstay.errors import InvalidPayload
from backstay.model.address import Family
from backstay.model.content import Attachment, Part, Usage
from backstay.model.event import EventBody
from backstay.model.ids import SessionId, TurnId, WindowId
from backstay.model.marks import Marks
from backstay.model.message import Message, NewMessage
from backstay.model.session import Session, SessionState, TitleBy
from backstay.model.turn import Call, Outcome, TurnState
from backstay.model.window import WindowReason

FORMAT = 1
# What to do about a document that is none.
AS_EXPORTED = "Import the document exactly as it was exported."
# The scope of a request id that was sent to the session itself. Any other scope is the spelling of an address.
TO_SESSION = "session"

# What every engine and every reader of JSON can hold, with room to count on.
Number = Annotated[int, msgspec.Meta(ge=0, le=1 << 52)]


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the document: what it does not know is refused, and what is as always is left out."""


class Facts(_Entry, frozen=True, kw_only=True):
    """What is known of the session itself. What can be counted in the rest of the document is not repeated here."""

    id: SessionId
    window: WindowId
    revision: Number
    context: Number
    fence: Number
    last_event: Number
    created_at: Number
    touched_at: Number
    active_at: Number
    state: SessionState = "open"
    ended_at: Number | None = None
    queued: Number = 0
    turns: Number = 0
    activity: Number = 0
    title: str | None = None
    title_by: TitleBy | None = None
    preview: str | None = None
    pinned: bool = False
    archived: bool = False
    tags: tuple[str, ...] = ()
    family: Family | None = None
    place: str | None = None
    idle_ttl: Number | None = None
    expires_by: Number | None = None
    metadata: dict[str, str] = {}
    agent: str | None = None


class ExportedAddress(_Entry, frozen=True, kw_only=True):
    """An address that leads to the session."""

    spelling: str
    generation: Number


class Beginning(_Entry, frozen=True, kw_only=True):
    """The first `until` messages of a window."""

    window: WindowId
    until: Number


class Segment(_Entry, frozen=True, kw_only=True):
    """Messages `low` to `high` of `source` stand in a window from `start` on; without `high`, all that follow."""

    start: Number
    source: WindowId
    low: Number
    high: Number | None = None


class ExportedWindow(_Entry, frozen=True, kw_only=True):
    """A window of the session, or as much of an ancestor's window as the session rests on.

    `base` is what it begins with, `behind` what its summary stands for; both stand earlier in the document.
    """

    id: WindowId
    session: SessionId
    reason: WindowReason
    start: Number
    event: Number
    at: Number
    parent: WindowId | None = None
    base: Beginning | None = None
    behind: Beginning | None = None
    segments: tuple[Segment, ...] = ()
    messages: tuple[Message, ...] = ()


class ExportedRequest(_Entry, frozen=True, kw_only=True):
    """By which id a redelivery of a turn is known. Without a scope it is only shown, and known by nothing."""

    id: str
    hash: str
    scope: str | None = None


class ExportedTurn(_Entry, frozen=True, kw_only=True):
    """A turn. One that waits has its `input`, or the finished messages that it will `record`."""

    id: TurnId
    root: TurnId
    agent: str | None
    state: TurnState
    event: Number
    created_at: Number
    first_event: Number | None = None
    started_at: Number | None = None
    ended_at: Number | None = None
    outcome: Outcome | None = None
    steer: bool = False
    taken_by: TurnId | None = None
    cancel_requested: bool = False
    place: Number = 0
    input: tuple[Part, ...] | None = None
    record: tuple[NewMessage, ...] | None = None
    request: ExportedRequest | None = None
    usage: Usage = Usage()
    forgotten: bool = False

    def waits_with(self) -> tuple[Part, ...]:
        """All parts that it owns while it waits."""
        return (self.input or ()) + tuple(part for message in self.record or () for part in message.parts)


class Reference(_Entry, frozen=True, kw_only=True):
    """Messages `low` to `high` (not included) of a window."""

    window: WindowId
    low: Number
    high: Number


class ExportedEvent(_Entry, frozen=True, kw_only=True):
    """An event. The messages that it speaks of are those at `said`."""

    number: Number
    last: Number
    fence: Number
    at: Number
    body: EventBody
    turn: TurnId | None = None
    said: Reference | None = None


class ExportedBlob(_Entry, frozen=True, kw_only=True):
    """The bytes of an attachment, named by their SHA-256."""

    hash: str
    data: bytes


class Export(_Entry, frozen=True, kw_only=True, tag_field="backstay", tag="session"):
    """A whole session. `ancestors` are the sessions it was forked from, the nearest first."""

    format: Number
    session: Facts
    windows: tuple[ExportedWindow, ...]
    events: tuple[ExportedEvent, ...]
    turns: tuple[ExportedTurn, ...] = ()
    calls: tuple[Call, ...] = ()
    ancestors: tuple[SessionId, ...] = ()
    addresses: tuple[ExportedAddress, ...] = ()
    marks: Marks = Marks()
    attachments: tuple[ExportedBlob, ...] = ()

    def attached(self) -> tuple[str, ...]:
        """The hashes of all attachments of messages and waiting turns, each once, in the order they are met."""
        said = [part for window in self.windows for message in window.messages for part in message.parts]
        waiting = [part for turn in self.turns for part in turn.waits_with()]
        return tuple(dict.fromkeys(part.blob for part in (*said, *waiting) if isinstance(part, Attachment)))

    def conversation(self) -> tuple[Message, ...]:
        """What the session's window says, at the positions where an agent reads it."""
        windows = {window.id: window for window in self.windows}
        said: list[Message] = []
        here, until = self.session.window, 1 << 52
        while True:
            said[:0] = _own(windows, here, until)
            base = windows[here].base
            if base is None:
                return tuple(said)
            here, until = base.window, min(base.until, until)

    def to_json(self) -> bytes:
        """The document as JSON; `InvalidPayload` if somebody put into it what JSON cannot hold."""
        try:
            return _encode(self)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidPayload(f"the document cannot be written as JSON: {error}", hint=AS_EXPORTED) from error

    @staticmethod
    def from_json(text: bytes | str) -> "Export":
        """The document that was written so, or `InvalidPayload` naming the place at which it is none.

        Only its shape is checked here; whether it is sound is checked by the store that imports it.
        """
        try:
            _check_format(_decode_head(text))
            return _decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError) as error:
            raise InvalidPayload(f"this is no exported session: {error}", hint=AS_EXPORTED) from error


def _own(windows: dict[WindowId, ExportedWindow], window: WindowId, until: int) -> list[Message]:
    """What a window's own segments contribute to its first `until` messages."""
    return [
        msgspec.structs.replace(message, position=position)
        for part in windows[window].segments
        for message in windows[part.source].messages
        if part.low <= message.position
        and (part.high is None or message.position < part.high)
        and (position := part.start + message.position - part.low) < until
    ]


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was imported.

    `copied` says that one of its ids was taken here, so that all of them are new. `addresses` lead to it now;
    `elsewhere` are those that lead to another session and stay there.
    """

    session: Session
    copied: bool
    addresses: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()


class _Head(msgspec.Struct):
    """What tells whether this version can read the rest."""

    backstay: str
    format: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Export).decode
_decode_head = msgspec.json.Decoder(_Head).decode


def _check_format(head: _Head) -> None:
    if head.backstay == "session" and head.format > FORMAT:
        raise InvalidPayload(
            f"the session was exported in format {head.format}; this version reads up to {FORMAT}",
            hint="Import it with the version of Backstay that exported it, or a newer one.",
        )
    if head.format < 1:
        raise InvalidPayload(f"there is no format {head.format}", hint=AS_EXPORTED)
