"""The exporter: a session as records, read in short transactions, so that no snapshot is held during the export.

The parts that can change are read at one moment: the session row, windows, turns and calls. Messages and events up to
that moment never change, except that old turns are folded. If that happens meanwhile, the export begins again.
"""

from collections.abc import Callable, Iterator
from functools import partial
from tempfile import TemporaryFile
from typing import BinaryIO, Protocol, TypeVar

from backstay.errors import Conflict, CorruptRecord, NotFound
from backstay.model.documents.document import Export
from backstay.model.documents.inspection.ranges import Range
from backstay.model.documents.records import (
    AttachmentChunk,
    AttachmentHead,
    ExportedMessage,
    Record,
    decoded_line,
    gathered,
    lines_of,
)
from backstay.model.ids import SessionId, WindowId
from backstay.model.message import Message
from backstay.model.operations.findings import ProgressCallback, quiet
from backstay.store.engine import Transaction
from backstay.store.verbs import blob_store
from backstay.store.verbs.documents import export_rows
from backstay.store.verbs.documents.export_rows import Changed, Snapshot

T = TypeVar("T")

# Folds are seldom, and each export is quicker than the time after which the next turns are folded.
_ATTEMPTS = 5
_PROGRESS_STEP = 500


class Reader(Protocol):
    """Runs a reading verb, in a transaction of its own or in the current one."""

    def __call__(self, verb: Callable[[Transaction], T], /) -> T: ...


def export(read: Reader, session: SessionId, owner: str) -> Export:
    """The whole session, in memory."""
    return _repeatedly(session, lambda: gathered(records(read, session, owner)))


def export_to(read: Reader, session: SessionId, owner: str, file: BinaryIO, progress: ProgressCallback = quiet) -> int:
    """Write the session to a seekable file. Returns the number of bytes."""
    start = file.tell()

    def write() -> int:
        file.seek(start)
        file.truncate()
        return sum(file.write(line) for line in lines_of(records(read, session, owner, progress)))

    return _repeatedly(session, write)


def _repeatedly(session: SessionId, work: Callable[[], T]) -> T:
    for _ in range(_ATTEMPTS):
        try:
            return work()
        except Changed:
            continue
    raise Conflict(f"{session} was changed again and again while it was exported", hint="Export it again.")


def records(read: Reader, session: SessionId, owner: str, progress: ProgressCallback = quiet) -> Iterator[Record]:
    """The records of a session. Raises `Changed` if they do not fit together."""
    with TemporaryFile() as spool:
        seen = read(partial(export_rows.snapshot, session=session, owner=owner, spool=spool))
        total_messages = sum(high - low for _, parts in seen.windows for low, high in parts)
        total = total_messages + seen.header.session.last_event
        for done, record in enumerate(_records(read, seen, spool)):
            if done % _PROGRESS_STEP == 0:
                progress("exporting", done, total)
            yield record
        read(partial(export_rows.check_unchanged, seen=seen))


def _records(read: Reader, seen: Snapshot, spool: BinaryIO) -> Iterator[Record]:
    yield seen.header
    yield from (window for window, _ in seen.windows)
    attached: dict[str, None] = {}
    for window, parts in seen.windows:
        for message in _messages(read, window.id, parts):
            attached.update(dict.fromkeys(export_rows.attached_in(message.parts)))
            yield ExportedMessage(window=window.id, message=message)
    spool.seek(0)
    yield from map(decoded_line, spool)
    yield from _events(read, seen)
    for name in dict.fromkeys([*attached, *seen.attached]):
        yield from _attachment(read, seen, name)


def _messages(read: Reader, window: WindowId, parts: list[Range]) -> Iterator[Message]:
    for start, end in parts:
        low = start
        while page := read(partial(export_rows.message_page, window=window, low=low, high=end)):
            yield from page
            low = page[-1].position + 1


def _events(read: Reader, seen: Snapshot) -> Iterator[Record]:
    facts, number = seen.header.session, 0
    while page := read(partial(export_rows.event_page, session=facts.id, number=number, last=facts.last_event)):
        for event in page:
            if event.number != number + 1 or event.fence > facts.fence:
                raise _changed(read, seen)
            number = event.last
            yield event
    if number != facts.last_event:
        raise _changed(read, seen)


def _changed(read: Reader, seen: Snapshot) -> Exception:
    """The error for events that do not fit the snapshot: they were folded or fenced off, or the store is damaged."""
    facts = seen.header.session
    if read(partial(export_rows.was_written, seen=seen)):
        return Changed()
    return CorruptRecord(f"the event log of {facts.id}", f"does not lead to event {facts.last_event}")


def _attachment(read: Reader, seen: Snapshot, name: str) -> Iterator[Record]:
    try:
        size = read(partial(blob_store.get, hash=name, owner=seen.owner)).size
    except NotFound as error:
        if name in seen.attached:  # The turn that waited with it was withdrawn meanwhile.
            raise Changed from error
        raise
    yield AttachmentHead(hash=name, size=size)
    start = 0
    while start < size:
        data = read(partial(export_rows.blob_page, name=name, owner=seen.owner, start=start))
        yield AttachmentChunk(data=data)
        start += len(data)
