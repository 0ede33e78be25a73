"""An exported session as a value in memory: everything that a store has about it.

Files contain it as records, one per line (`records`); this value and its JSON are for sessions that fit into memory.
The session's owner, its lease and its position in the feed are not part of it: they belong to the store. A message is
listed once, in the window where it was written; events and segments refer to it.
"""

from typing import Annotated

import msgspec

from backstay.errors import InvalidPayload
from backstay.model.addresses.address import Family
from backstay.model.content import Part, Usage
from backstay.model.event import EventBody
from backstay.model.ids import SessionId, TurnId, WindowId
from backstay.model.marks import Marks
from backstay.model.message import Message, NewMessage
from backstay.model.session import SessionInfo, SessionState, TitleBy
from backstay.model.turn import Outcome, ToolCallRecord, TurnState
from backstay.model.window import WindowReason

FORMAT = 1
# The hint for an invalid document.
AS_EXPORTED = "Import the document exactly as it was exported."
# The scope of a request id that was sent to the session itself. Any other scope is the spelling of an address.
TO_SESSION = "session"

# The range of a number in every engine and every JSON reader, with room to add.
Number = Annotated[int, msgspec.Meta(ge=0, le=1 << 52)]


class DocumentPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the document. Unknown fields are rejected; fields with their default value are omitted."""


class ExportedSession(DocumentPart, frozen=True, kw_only=True):
    """The session itself. Numbers that can be counted in the rest of the document are not repeated here.

    Fields with the name of a field of `SessionInfo` have the same meaning; times are milliseconds since 1970 (UTC).

    Attributes:
        touched_at: When it was last used, for the idle time to live.
        queued: The last place that was given to a waiting turn.
        idle_ttl: The idle time to live, in milliseconds.
        expires_by: When the absolute time to live runs out.
    """

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


class ExportedAddress(DocumentPart, frozen=True, kw_only=True):
    """An address that points to the session; `generation` counts the sessions that it has pointed to."""

    spelling: str
    generation: Number


class Beginning(DocumentPart, frozen=True, kw_only=True):
    """The first `until` messages of a window."""

    window: WindowId
    until: Number


class Segment(DocumentPart, frozen=True, kw_only=True):
    """Messages `low` to `high` of `source` are in a window from `start` on; without `high`, all that follow."""

    start: Number
    source: WindowId
    low: Number
    high: Number | None = None


class ExportedWindow(DocumentPart, frozen=True, kw_only=True):
    """A window of the session, or the part of an ancestor's window that the session needs.

    Attributes:
        id: The id of the window.
        session: The session that it belongs to.
        reason: Why it was opened.
        start: The number of messages at its beginning that are shared with earlier windows, or summarise them.
        event: The number of the event of its opening.
        at: When it was opened.
        parent: The window that it succeeded.
        base: The messages that it begins with; their window comes earlier in the document.
        summarises: The messages that its summary replaces; their window comes earlier in the document.
        segments: Its messages after those of `base`, as ranges of windows.
        messages: The messages that were written in this window.
    """

    id: WindowId
    session: SessionId
    reason: WindowReason
    start: Number
    event: Number
    at: Number
    parent: WindowId | None = None
    base: Beginning | None = None
    summarises: Beginning | None = msgspec.field(default=None, name="behind")
    segments: tuple[Segment, ...] = ()
    messages: tuple[Message, ...] = ()


class ExportedRequest(DocumentPart, frozen=True, kw_only=True):
    """The id of a request for a turn. A repeated request is recognised by it.

    Attributes:
        id: The id that the client chose.
        hash: The hash of the request; a repetition must have the same one.
        scope: `TO_SESSION`, or the address that the request was sent to. Without a scope the id is only displayed.
    """

    id: str
    hash: str
    scope: str | None = None


class ExportedTurn(DocumentPart, frozen=True, kw_only=True):
    """A turn. Fields with the name of a field of `Turn` have the same meaning.

    Attributes:
        first_event: The number of the event of its start, as long as its deltas are not folded.
        place: Its place in the queue while it waits.
        input: The input of a waiting turn for an agent.
        record: The finished messages that a waiting turn without an agent will add.
        request: The request that created it.
    """

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
    held: bool = False

    def waits_with(self) -> tuple[Part, ...]:
        """All parts of a waiting turn."""
        return (self.input or ()) + tuple(part for message in self.record or () for part in message.parts)


class Reference(DocumentPart, frozen=True, kw_only=True):
    """Messages `low` to `high` (exclusive) of a window."""

    window: WindowId
    low: Number
    high: Number


class ExportedEvent(DocumentPart, frozen=True, kw_only=True):
    """An event. Fields with the name of a field of `Event` have the same meaning.

    `messages` refers to its messages. In the document the field is called `said`.
    """

    number: Number
    last: Number
    fence: Number
    at: Number
    body: EventBody
    turn: TurnId | None = None
    messages: Reference | None = msgspec.field(default=None, name="said")


class ExportedBlob(DocumentPart, frozen=True, kw_only=True):
    """The bytes of an attachment, identified by their SHA-256."""

    hash: str
    data: bytes


class Export(DocumentPart, frozen=True, kw_only=True, tag_field="backstay", tag="session"):
    """A whole session.

    Attributes:
        format: The version of the format.
        session: The session itself.
        windows: Its windows, and those of its ancestors that it needs.
        events: Its event log.
        turns: Its turns.
        calls: The ledgers of its turns.
        ancestors: The sessions that it was forked from, the nearest first.
        addresses: The addresses that point to it.
        marks: The owner's draft and read position.
        attachments: The files of its messages.
    """

    format: Number
    session: ExportedSession
    windows: tuple[ExportedWindow, ...]
    events: tuple[ExportedEvent, ...]
    turns: tuple[ExportedTurn, ...] = ()
    calls: tuple[ToolCallRecord, ...] = ()
    ancestors: tuple[SessionId, ...] = ()
    addresses: tuple[ExportedAddress, ...] = ()
    marks: Marks = Marks()
    attachments: tuple[ExportedBlob, ...] = ()

    def conversation(self) -> tuple[Message, ...]:
        """The messages of the current window, at the positions where an agent reads them."""
        windows = {window.id: window for window in self.windows}
        messages: list[Message] = []
        here, until = self.session.window, 1 << 52
        while True:
            messages[:0] = _own(windows, here, until)
            base = windows[here].base
            if base is None:
                return tuple(messages)
            here, until = base.window, min(base.until, until)

    def to_json(self) -> bytes:
        """The document as JSON.

        Raises:
            InvalidPayload: It contains a value that JSON cannot represent.
        """
        try:
            return _encode(self)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidPayload(f"the document cannot be written as JSON: {error}", hint=AS_EXPORTED) from error

    @staticmethod
    def from_json(text: bytes | str) -> "Export":
        """The document from its JSON. Only its shape is checked here; the store that imports it checks the content.

        Args:
            text: The JSON of `to_json`.

        Raises:
            InvalidPayload: It is not an exported session; the error names the location.
        """
        try:
            head = _decode_head(text)
            if head.backstay == "session" or head.format < 1:
                check_format(head.format, FORMAT)
            return _decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError) as error:
            raise InvalidPayload(f"not an exported session: {error}", hint=AS_EXPORTED) from error


def _own(windows: dict[WindowId, ExportedWindow], window: WindowId, until: int) -> list[Message]:
    """The messages that a window's own segments contribute to its first `until` messages."""
    return [
        msgspec.structs.replace(message, position=position)
        for part in windows[window].segments
        for message in windows[part.source].messages
        if part.low <= message.position
        and (part.high is None or message.position < part.high)
        and (position := part.start + message.position - part.low) < until
    ]


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import.

    Attributes:
        session: The imported session.
        copied: Whether all its ids are new, because one of them was in use here, or because new ones were requested, as
            a server always does.
        addresses: The addresses that point to it now.
        elsewhere: Addresses that already point to another session and stay there.
        dropped: Addresses of the document that were not imported, because they were not requested.
        held: Its waiting turns, which a person must release.
    """

    session: SessionInfo
    copied: bool
    addresses: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    held: tuple[TurnId, ...] = ()


class _Head(msgspec.Struct):
    """The fields that show whether this version can read the rest."""

    backstay: str
    format: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Export).decode
_decode_head = msgspec.json.Decoder(_Head).decode


def check_format(found: int, newest: int) -> None:
    """Raise `InvalidPayload` unless this version can read the format."""
    if found > newest:
        raise InvalidPayload(
            f"the session was exported in format {found}; this version reads up to {newest}",
            hint="Import it with the version of Backstay that exported it, or a newer one.",
        )
    if found < 1:
        raise InvalidPayload(f"format {found} does not exist", hint=AS_EXPORTED)
