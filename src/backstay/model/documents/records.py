"""An exported session as records, and the file with one record per line (JSON Lines).

The header comes first, then windows, messages, turns, calls, events and attachments, in this order. The last line
counts them, so a truncated file is recognised. Reading and writing a file needs memory for one record, not for the
session.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import BinaryIO, NamedTuple

import msgspec

from backstay.errors import InvalidPayload, TooLarge
from backstay.model.documents.document import (
    AS_EXPORTED,
    FORMAT,
    DocumentPart,
    Export,
    ExportedAddress,
    ExportedBlob,
    ExportedEvent,
    ExportedSession,
    ExportedTurn,
    ExportedWindow,
    Number,
    check_format,
)
from backstay.model.ids import SessionId, WindowId
from backstay.model.marks import Marks
from backstay.model.message import Message
from backstay.model.turn import ToolCallRecord

# Format 1 is one JSON object, `Export`; this is the format with lines.
LINES = 2
MEDIA_TYPE = "application/x-ndjson"
ENDING = ".jsonl"
CHUNK = 1 << 20


class Header(DocumentPart, frozen=True, kw_only=True, tag_field="backstay", tag="session"):
    """The first line: the session itself. `ancestors` as in `Export`."""

    format: Number
    session: ExportedSession
    ancestors: tuple[SessionId, ...] = ()
    addresses: tuple[ExportedAddress, ...] = ()
    marks: Marks = Marks()


class ExportedMessage(DocumentPart, frozen=True, kw_only=True):
    """A message, and the window where it was written."""

    window: WindowId
    message: Message


class AttachmentHead(DocumentPart, frozen=True, kw_only=True):
    """An attachment. The chunks that follow contain its bytes."""

    hash: str
    size: Number


class AttachmentChunk(DocumentPart, frozen=True, kw_only=True):
    """The next bytes of the preceding attachment."""

    data: bytes


class RecordCounts(DocumentPart, frozen=True, kw_only=True):
    """The last line: the number of records of each kind."""

    windows: Number = 0
    messages: Number = 0
    turns: Number = 0
    calls: Number = 0
    events: Number = 0
    attachments: Number = 0


class RecordLine(DocumentPart, frozen=True, kw_only=True):
    """Any line but the first. Exactly one of the fields is set."""

    window: ExportedWindow | None = None
    message: ExportedMessage | None = None
    turn: ExportedTurn | None = None
    call: ToolCallRecord | None = None
    event: ExportedEvent | None = None
    attachment: AttachmentHead | None = None
    chunk: AttachmentChunk | None = None
    end: RecordCounts | None = None


Record = (
    Header
    | ExportedWindow
    | ExportedMessage
    | ExportedTurn
    | ToolCallRecord
    | ExportedEvent
    | AttachmentHead
    | AttachmentChunk
    | RecordCounts
)

# The field of a line for each kind of record, in the order of the file.
_FIELDS: dict[type, str] = {
    ExportedWindow: "window",
    ExportedMessage: "message",
    ExportedTurn: "turn",
    ToolCallRecord: "call",
    ExportedEvent: "event",
    AttachmentHead: "attachment",
    AttachmentChunk: "chunk",
    RecordCounts: "end",
}
_RANK = {kind: rank for rank, kind in enumerate(_FIELDS)}
_RANK[AttachmentChunk] = _RANK[AttachmentHead]
_COUNTED = {ExportedWindow, ExportedMessage, ExportedTurn, ToolCallRecord, ExportedEvent, AttachmentHead}


class LocatedRecord(NamedTuple):
    """A record and its location in the document: `line 17`, or `$.events[3]` in one JSON object."""

    location: str
    record: Record


class _RecordHead(msgspec.Struct):
    """The fields that show the format; the rest is skipped."""

    backstay: str
    format: int


_encode = msgspec.json.Encoder().encode
_decode_head = msgspec.json.Decoder(_RecordHead).decode
_decode_header = msgspec.json.Decoder(Header).decode
_decode_line = msgspec.json.Decoder(RecordLine).decode
# The hint for one JSON object that does not fit into memory.
_SHORTER = "Export the session again with this version, whose documents are read line by line."
# The errors of decoding a line.
_MALFORMED = (msgspec.DecodeError, UnicodeError, RecursionError, TypeError)


# --- writing ----------------------------------------------------------------------------------------------------------


def line_of(record: Record) -> bytes:
    """A record as a line of the file."""
    try:
        value = record if isinstance(record, Header) else {_FIELDS[type(record)]: record}
        return _encode(value) + b"\n"
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidPayload(f"the document cannot be written as JSON: {error}", hint=AS_EXPORTED) from error


def lines_of(records: Iterable[Record]) -> Iterator[bytes]:
    """The lines of a whole file, with the counts at its end."""
    counts = _Counting()
    for record in records:
        counts.add(record)
        yield line_of(record)
    yield line_of(counts.counts())


class _Counting:
    """Counts the records of a document and checks their order."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(RecordCounts.__struct_fields__, 0)
        self._kind: type = ExportedWindow

    def add(self, record: Record) -> str | None:
        """Count a record; returns the problem if it may not stand here, or None."""
        kind = type(record)
        if kind is Header:
            return None
        if _RANK[kind] < _RANK[self._kind]:
            return f"has a {_FIELDS[kind]} after the {_FIELDS[self._kind]}s"
        if kind is AttachmentChunk and not self._counts["attachments"]:
            return "has a chunk without an attachment"
        self._kind = AttachmentHead if kind is AttachmentChunk else kind
        if kind in _COUNTED:
            self._counts[f"{_FIELDS[kind]}s"] += 1
        return None

    def counts(self) -> RecordCounts:
        return RecordCounts(**self._counts)


# --- reading ----------------------------------------------------------------------------------------------------------


def records_in(file: BinaryIO, longest: int) -> Iterator[LocatedRecord]:
    """The records of an exported file, in this format or as one JSON object.

    Args:
        file: The file, read once from its start.
        longest: The largest line, or JSON object, that may be held in memory, in bytes.

    Raises:
        InvalidPayload: It is not an exported session, or it is truncated.
        TooLarge: A line or the JSON object is longer than `longest`.
    """
    first = _read_line(file, longest, 1)
    if _format_of(first) != LINES:
        yield from records_of(_one_object(first, file, longest))
        return
    try:
        header = _decode_header(first)
    except _MALFORMED as error:
        raise _malformed("line 1", error) from error
    yield LocatedRecord("line 1", header)
    yield from _following(file, longest)


def header_in(file: BinaryIO, longest: int) -> Header:
    """The header of an exported file. The file position is undefined afterwards."""
    found = next(records_in(file, longest)).record
    if not isinstance(found, Header):
        raise InvalidPayload("the document does not begin with its header", hint=AS_EXPORTED)
    return found


def _following(file: BinaryIO, longest: int) -> Iterator[LocatedRecord]:
    counting, number = _Counting(), 1
    while text := _read_line(file, longest, number + 1):
        number += 1
        location = f"line {number}"
        record = _record(text, location)
        if isinstance(record, RecordCounts):
            _check_counts(record, counting.counts(), location)
            if _read_line(file, longest, number + 1):
                raise InvalidPayload(f"line {number + 1} follows the last line", hint=AS_EXPORTED)
            return
        problem = counting.add(record)
        if problem is not None:
            raise InvalidPayload(f"{location} {problem}", hint=AS_EXPORTED)
        yield LocatedRecord(location, record)
    raise InvalidPayload(
        f"the document is cut off: it ends after line {number}, without the counts", hint="Export or copy it again."
    )


def decoded_line(text: bytes) -> Record:
    """The record on a line that this process wrote."""
    return _record(text, "a line")


def _record(text: bytes, location: str) -> Record:
    try:
        line = _decode_line(text)
    except _MALFORMED as error:
        raise _malformed(location, error) from error
    found = [value for name in line.__struct_fields__ if (value := getattr(line, name)) is not None]
    if len(found) != 1:
        raise InvalidPayload(f"{location} holds {len(found)} records, not one", hint=AS_EXPORTED)
    record: Record = found[0]
    return record


def _check_counts(stated: RecordCounts, found: RecordCounts, location: str) -> None:
    for name in RecordCounts.__struct_fields__:
        expected, here = getattr(stated, name), getattr(found, name)
        if expected != here:
            raise InvalidPayload(
                f"{location} counts {expected:,} {name}, but there are {here:,}", hint="Export or copy it again."
            )


def _read_line(file: BinaryIO, longest: int, number: int) -> bytes:
    text = file.readline(longest + 1)
    if len(text) > longest:
        raise TooLarge(
            f"line {number} of the document has more than {longest:,} bytes",
            hint=_SHORTER if number == 1 else "Ask for a higher limit on lines.",
        )
    return text


def _format_of(first: bytes) -> int | None:
    """The format according to a complete first line; None if it is the beginning of something longer."""
    try:
        head = _decode_head(first)
    except _MALFORMED:
        return None
    if head.backstay == "session":
        check_format(head.format, LINES)
    return head.format


def _one_object(first: bytes, file: BinaryIO, longest: int) -> Export:
    text = bytearray(first)
    while len(text) <= longest and (piece := file.read(CHUNK)):
        text += piece
    if len(text) > longest:
        raise TooLarge(
            f"the document is one JSON object of more than {longest:,} bytes",
            hint=_SHORTER,
        )
    return Export.from_json(bytes(text))


def _malformed(location: str, error: Exception) -> InvalidPayload:
    return InvalidPayload(f"{location} is not a line of an exported session: {error}", hint=AS_EXPORTED)


# --- whole documents in memory ----------------------------------------------------------------------------------------


def records_of(export: Export) -> Iterator[LocatedRecord]:
    """The records of a document in memory."""
    header = Header(
        format=LINES,
        session=export.session,
        ancestors=export.ancestors,
        addresses=export.addresses,
        marks=export.marks,
    )
    yield LocatedRecord("$", header)
    for index, window in enumerate(export.windows):
        yield LocatedRecord(f"$.windows[{index}]", msgspec.structs.replace(window, messages=()))
    for index, window in enumerate(export.windows):
        for number, message in enumerate(window.messages):
            yield LocatedRecord(
                f"$.windows[{index}].messages[{number}]", ExportedMessage(window=window.id, message=message)
            )
    yield from (LocatedRecord(f"$.turns[{index}]", turn) for index, turn in enumerate(export.turns))
    yield from (LocatedRecord(f"$.calls[{index}]", call) for index, call in enumerate(export.calls))
    yield from (LocatedRecord(f"$.events[{index}]", event) for index, event in enumerate(export.events))
    for index, blob in enumerate(export.attachments):
        location = f"$.attachments[{index}]"
        yield LocatedRecord(location, AttachmentHead(hash=blob.hash, size=len(blob.data)))
        for start in range(0, len(blob.data), CHUNK):
            yield LocatedRecord(location, AttachmentChunk(data=blob.data[start : start + CHUNK]))


def located(records: Iterable[Record]) -> Iterator[LocatedRecord]:
    """Records outside a document, placed by their number among their kind."""
    counts: dict[type, int] = {}
    for record in records:
        number = counts[type(record)] = counts.get(type(record), -1) + 1
        yield LocatedRecord("$" if isinstance(record, Header) else f"$.{_FIELDS[type(record)]}s[{number}]", record)


def gathered(records: Iterable[Record]) -> Export:
    """These records as one document in memory."""
    collector = _Collector()
    for record in records:
        collector.add(record)
    return collector.export()


class _Collector:
    def __init__(self) -> None:
        self._header: Header | None = None
        self._windows: dict[WindowId, ExportedWindow] = {}
        self._messages: dict[WindowId, list[Message]] = {}
        self._turns: list[ExportedTurn] = []
        self._calls: list[ToolCallRecord] = []
        self._events: list[ExportedEvent] = []
        self._blobs: list[tuple[str, list[bytes]]] = []

    def add(self, record: Record) -> None:
        match record:
            case Header():
                self._header = record
            case ExportedWindow():
                self._windows[record.id] = record
            case ExportedMessage():
                self._messages.setdefault(record.window, []).append(record.message)
            case ExportedTurn():
                self._turns.append(record)
            case ToolCallRecord():
                self._calls.append(record)
            case ExportedEvent():
                self._events.append(record)
            case AttachmentHead():
                self._blobs.append((record.hash, []))
            case AttachmentChunk():
                self._blobs[-1][1].append(record.data)
            case RecordCounts():
                pass

    def export(self) -> Export:
        if self._header is None:
            raise InvalidPayload("the document has no header", hint=AS_EXPORTED)
        return Export(
            format=FORMAT,
            session=self._header.session,
            ancestors=self._header.ancestors,
            addresses=self._header.addresses,
            marks=self._header.marks,
            windows=tuple(
                msgspec.structs.replace(window, messages=tuple(self._messages.get(window.id, ())))
                for window in self._windows.values()
            ),
            turns=tuple(self._turns),
            calls=tuple(self._calls),
            events=tuple(self._events),
            attachments=tuple(ExportedBlob(hash=name, data=b"".join(chunks)) for name, chunks in self._blobs),
        )


def digest_of(chunks: Iterable[bytes]) -> tuple[int, str]:
    """The total length of these bytes, and their SHA-256."""
    size, digest = 0, sha256()
    for chunk in chunks:
        size += len(chunk)
        digest.update(chunk)
    return size, digest.hexdigest()
