"""A draft: a document that was read and not imported yet, in a temporary database on disk.

The checks of a document, and the assignment of new ids, look up ids, numbers and names all over it. In memory that
would take several times the size of the document; here it takes a small page cache. The database is a file without a
name: it disappears with its process, however the process ends.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import apsw
import msgspec

from backstay.errors import InvalidPayload, StoreFull
from backstay.model.documents.document import AS_EXPORTED, ExportedEvent, ExportedTurn, ExportedWindow
from backstay.model.documents.inspection.inspected import LocatedWindow
from backstay.model.documents.records import (
    AttachmentChunk,
    AttachmentHead,
    ExportedMessage,
    Header,
    LocatedRecord,
    RecordCounts,
)
from backstay.model.ids import MessageId, TurnId, WindowId
from backstay.model.message import Message
from backstay.model.operations.findings import ProgressCallback, quiet
from backstay.model.turn import ToolCallRecord
from backstay.store.engine import Parameter
from backstay.store.queries import load

_QUERIES = load(Path(__file__).with_name("sql"))
_CACHE_KIB = 2_048
_PROGRESS_STEP = 500
# Nothing here outlives the process, so nothing is logged or synced.
_PRAGMAS = (
    "PRAGMA journal_mode = OFF",
    "PRAGMA synchronous = OFF",
    "PRAGMA temp_store = FILE",
    f"PRAGMA cache_size = -{_CACHE_KIB}",
)

_encode = msgspec.json.Encoder().encode
_decode_message = msgspec.json.Decoder(Message).decode
_decode_turn = msgspec.json.Decoder(ExportedTurn).decode
_decode_call = msgspec.json.Decoder(ToolCallRecord).decode
_decode_event = msgspec.json.Decoder(ExportedEvent).decode
_decode_attachment = msgspec.json.Decoder(AttachmentHead).decode


class DocumentDraft:
    """A document, for one thread at a time."""

    def __init__(self) -> None:
        self._header: Header | None = None
        self.windows: list[LocatedWindow] = []
        self._known: set[WindowId] = set()
        self._scopes = 0
        self._database = apsw.Connection("")
        for pragma in _PRAGMAS:
            self._database.execute(pragma)
        self._database.execute("BEGIN")
        for name, statement in _QUERIES.items():
            if name.startswith("create_"):
                self._database.execute(statement)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close(True)

    # --- reading it in ------------------------------------------------------------------------------------------------

    def fill(self, records: Iterable[LocatedRecord], progress: ProgressCallback = quiet) -> int:
        """Read a document. Returns the number of records. Raises `InvalidPayload` if two of them have one id."""
        count = 0
        try:
            for location, record in records:
                self._add(location, record)
                count += 1
                if count % _PROGRESS_STEP == 0:
                    progress("reading", count, count)
        except apsw.FullError as error:
            raise StoreFull(
                "the disk is full: the temporary file of an import cannot be written",
                hint="Free some space, or set SQLITE_TMPDIR to another directory.",
            ) from error
        if self._header is None:
            raise InvalidPayload("the document has no header", hint=AS_EXPORTED)
        return count

    def _add(self, location: str, record: object) -> None:
        match record:
            case Header():
                self._header = record
            case ExportedWindow(messages=()):
                self._add_window(location, record)
            case ExportedMessage(window=window, message=message):
                self._add_message(location, window, message)
            case ExportedTurn():
                self._add_once("add_turn", record.id, location, _encode(record), location=location)
            case ToolCallRecord():
                self._run("add_call", record.root, record.ordinal, location, _encode(record))
            case ExportedEvent():
                self._run("add_event", record.number, location, _encode(record))
            case AttachmentHead():
                self._add_once("add_attachment", record.hash, location, _encode(record), location=location)
            case AttachmentChunk():
                self._run("add_chunk", record.data)
            case RecordCounts():
                pass
            case _:
                raise InvalidPayload(f"{location} holds messages inside of a window", hint=AS_EXPORTED)

    def _add_window(self, location: str, window: ExportedWindow) -> None:
        if window.id in self._known:
            raise _twice(location, window.id)
        self._known.add(window.id)
        self.windows.append(LocatedWindow(location, window))

    def _add_message(self, location: str, window: WindowId, message: Message) -> None:
        if window not in self._known:
            raise InvalidPayload(f"{location} is a message of {window}, which is not in the document", hint=AS_EXPORTED)
        row = (message.id, window, message.position, message.turn, message.at, location, _encode(message))
        self._add_once("add_message", *row, location=location)

    def _add_once(self, query: str, *row: Parameter, location: str) -> None:
        try:
            self._run(query, *row)
        except apsw.ConstraintError as error:
            raise _twice(location, str(row[0])) from error

    # --- the document -------------------------------------------------------------------------------------------------

    @property
    def header(self) -> Header:
        if self._header is None:
            raise RuntimeError("the draft is empty")
        return self._header

    def messages(self, window: WindowId) -> Iterator[tuple[str, Message]]:
        for location, body in self._rows("messages_of", window):
            yield location, _decode_message(body)

    def turns(self) -> Iterator[tuple[str, ExportedTurn]]:
        for location, body in self._rows("turns"):
            yield location, _decode_turn(body)

    def turn(self, turn: TurnId) -> ExportedTurn | None:
        body = self._value("turn", turn)
        return None if body is None else _decode_turn(body)

    def has_turn(self, turn: TurnId) -> bool:
        return self._row("has_turn", turn) is not None

    def calls(self) -> Iterator[tuple[str, ToolCallRecord]]:
        for location, body in self._rows("calls"):
            yield location, _decode_call(body)

    def has_call(self, key: str) -> bool:
        root, _, ordinal = key.rpartition(".")
        whole = ordinal.isdecimal() and len(ordinal) < 18 and str(int(ordinal)) == ordinal
        return whole and self._row("call", root, int(ordinal)) is not None

    def events(self) -> Iterator[tuple[str, ExportedEvent]]:
        for location, body in self._rows("events"):
            yield location, _decode_event(body)

    def event_before(self, number: int) -> ExportedEvent | None:
        body = self._value("event_before", number)
        return None if body is None else _decode_event(body)

    def attachments(self) -> Iterator[tuple[str, AttachmentHead]]:
        for location, body in self._rows("attachments"):
            yield location, _decode_attachment(body)

    def bytes_of(self, attachment: str) -> Iterator[bytes]:
        return (chunk for (chunk,) in self._rows("chunks_of", attachment))

    def keys(self) -> "DraftKeys":
        self._scopes += 1
        return DraftKeys(self, self._scopes)

    # --- more of it, for the import -----------------------------------------------------------------------------------

    def messages_by_time(self) -> Iterator[tuple[WindowId, Message]]:
        """All messages with their windows, in the order of their writing."""
        for window, body in self._rows("messages_by_time"):
            yield window, _decode_message(body)

    def message_ids(self) -> Iterator[MessageId]:
        return (message for (message,) in self._rows("message_ids"))

    def end_of_window(self, window: WindowId) -> int:
        """The position after the last message that was written in the window."""
        return self._value("end_of_window", window) or 0

    def turns_named(self) -> Iterator[tuple[TurnId, int]]:
        return ((turn, messages) for turn, messages in self._rows("turns_named"))

    def has_message(self, message: MessageId) -> bool:
        return self._row("message", message) is not None

    def rename(self, old: str, new: str) -> None:
        self._run("add_name", old, new)

    def renamed(self, old: str) -> str | None:
        new: str | None = self._value("name", old)
        return new

    # --- its database -------------------------------------------------------------------------------------------------

    def _rows(self, query: str, *parameters: Parameter) -> Iterator[Any]:  # Any: the types of the columns
        with closing(self._database.execute(_QUERIES[query], parameters)) as cursor:
            yield from cursor

    def _row(self, query: str, *parameters: Parameter) -> Any:  # Any: as above
        with closing(self._database.execute(_QUERIES[query], parameters)) as cursor:
            return cursor.fetchone()

    def _value(self, query: str, *parameters: Parameter) -> Any:  # Any: as above
        """The only column of the first row, or None without a row."""
        row = self._row(query, *parameters)
        if row is None:
            return None
        (found,) = row
        return found

    def _run(self, query: str, *parameters: Parameter) -> int:
        try:
            self._database.execute(_QUERIES[query], parameters)
        except (UnicodeEncodeError, OverflowError) as error:
            raise InvalidPayload(f"a value cannot be stored: {error}", hint=AS_EXPORTED) from error
        return self._database.changes()


class DraftKeys:
    """A set of texts in the draft's database."""

    def __init__(self, draft: DocumentDraft, scope: int) -> None:
        self._draft, self._scope = draft, scope

    def add(self, *key: str) -> bool:
        return self._draft._run("add_key", self._scope, _joined(key)) > 0  # noqa: SLF001  # of the same module

    def discard(self, *key: str) -> None:
        self._draft._run("drop_key", self._scope, _joined(key))  # noqa: SLF001

    def has(self, *key: str) -> bool:
        return self._draft._row("key", self._scope, _joined(key)) is not None  # noqa: SLF001

    def __iter__(self) -> Iterator[str]:
        return (key for (key,) in self._draft._rows("keys", self._scope))  # noqa: SLF001


def _joined(key: tuple[str, ...]) -> str:
    """One text for a key of several parts; different keys have different texts."""
    return key[0] if len(key) == 1 else _encode(key).decode()


def _twice(location: str, name: str) -> InvalidPayload:
    return InvalidPayload(f"{location} names {name} twice", hint=AS_EXPORTED)
