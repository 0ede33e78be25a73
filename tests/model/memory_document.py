"""An exported session in memory, as the inspection and the re-id read it, and a small valid one to change."""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator

from backstay.model.codec import arguments_hash
from backstay.model.content import Attachment, Text, ToolCall, ToolResult
from backstay.model.documents.document import (
    Beginning,
    Export,
    ExportedBlob,
    ExportedEvent,
    ExportedSession,
    ExportedTurn,
    ExportedWindow,
    Reference,
    Segment,
)
from backstay.model.documents.inspection.inspected import LocatedWindow
from backstay.model.documents.records import AttachmentHead, ExportedMessage, Header, records_of
from backstay.model.event import SessionCreated, ToolCalled, ToolReturned, TurnEnded, TurnStarted, WindowOpened
from backstay.model.ids import IdSource, MessageId, TurnId, WindowId, message_of
from backstay.model.message import Message
from backstay.model.turn import Completed, ToolCallRecord
from backstay.testing import ManualClock

ids = IdSource(ManualClock())
SESSION, FIRST, SECOND, TURN = ids.session(), ids.window(), ids.window(), ids.turn()
INPUT, SUMMARY = ids.message(), ids.message()
BYTES = b"a small file"
BLOB = hashlib.sha256(BYTES).hexdigest()
CALL = ToolCall("c1", "look", {"at": "sky"})


class MemoryKeys:
    """A set of keys."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, ...], None] = {}

    def add(self, *key: str) -> bool:
        new = key not in self._keys
        self._keys[key] = None
        return new

    def discard(self, *key: str) -> None:
        self._keys.pop(key, None)

    def has(self, *key: str) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter([key[0] for key in self._keys])


class MemoryDocument:
    """The document of an `Export`, and a table of new ids."""

    def __init__(self, export: Export) -> None:
        self._export = export
        self._records = list(records_of(export))
        self._names: dict[str, str] = {}

    @property
    def header(self) -> Header:
        header = self._records[0].record
        assert isinstance(header, Header)
        return header

    @property
    def windows(self) -> list[LocatedWindow]:
        return [LocatedWindow(at, record) for at, record in self._records if isinstance(record, ExportedWindow)]

    def messages(self, window: WindowId) -> Iterator[tuple[str, Message]]:
        for at, record in self._records:
            if isinstance(record, ExportedMessage) and record.window == window:
                yield at, record.message

    def turns(self) -> Iterator[tuple[str, ExportedTurn]]:
        return ((at, record) for at, record in self._records if isinstance(record, ExportedTurn))

    def turn(self, turn: TurnId) -> ExportedTurn | None:
        return next((one for one in self._export.turns if one.id == turn), None)

    def has_turn(self, turn: TurnId) -> bool:
        return self.turn(turn) is not None

    def calls(self) -> Iterator[tuple[str, ToolCallRecord]]:
        return ((at, record) for at, record in self._records if isinstance(record, ToolCallRecord))

    def has_call(self, key: str) -> bool:
        return any(call.key == key for call in self._export.calls)

    def events(self) -> Iterator[tuple[str, ExportedEvent]]:
        return ((at, record) for at, record in self._records if isinstance(record, ExportedEvent))

    def event_before(self, number: int) -> ExportedEvent | None:
        index = bisect_right(self._export.events, number, key=lambda event: event.number) - 1
        return self._export.events[index] if index >= 0 else None

    def attachments(self) -> Iterator[tuple[str, AttachmentHead]]:
        return ((at, record) for at, record in self._records if isinstance(record, AttachmentHead))

    def bytes_of(self, attachment: str) -> Iterator[bytes]:
        return (blob.data for blob in self._export.attachments if blob.hash == attachment)

    def keys(self) -> MemoryKeys:
        return MemoryKeys()

    def turns_named(self) -> Iterator[tuple[TurnId, int]]:
        for turn in self._export.turns:
            yield (
                turn.id,
                sum(message.turn == turn.id for window in self._export.windows for message in window.messages),
            )

    def has_message(self, message: MessageId) -> bool:
        return any(message == one.id for window in self._export.windows for one in window.messages)

    def rename(self, old: str, new: str) -> None:
        self._names[old] = new

    def renamed(self, old: str) -> str | None:
        return self._names.get(old)


def small_export() -> Export:
    """A session with one turn, which called a tool, and a compaction after it."""
    answer = [message_of(TURN, index) for index in range(3)]
    said = (
        Message(
            id=INPUT,
            position=0,
            turn=TURN,
            role="user",
            parts=(Text("look"), Attachment(BLOB, "a.txt", "text/plain", len(BYTES))),
            at=1,
        ),
        Message(id=answer[0], position=1, turn=TURN, role="assistant", parts=(CALL,), at=2),
        Message(id=answer[1], position=2, turn=TURN, role="tool", parts=(ToolResult("c1", "blue"),), at=3),
        Message(id=answer[2], position=3, turn=TURN, role="assistant", parts=(Text("It is blue."),), at=4),
    )
    summary = Message(id=SUMMARY, position=0, turn=None, role="summary", parts=(Text("They looked."),), at=5)
    return Export(
        format=1,
        session=ExportedSession(
            id=SESSION,
            window=SECOND,
            revision=4,
            context=3,
            fence=1,
            last_event=6,
            created_at=1,
            touched_at=5,
            active_at=5,
            turns=1,
        ),
        windows=(
            ExportedWindow(
                id=FIRST,
                session=SESSION,
                reason="first",
                start=0,
                event=1,
                at=1,
                segments=(Segment(start=0, source=FIRST, low=0),),
                messages=said,
            ),
            ExportedWindow(
                id=SECOND,
                session=SESSION,
                reason="compaction",
                start=2,
                event=6,
                at=5,
                parent=FIRST,
                summarises=Beginning(window=FIRST, until=3),
                segments=(
                    Segment(start=0, source=SECOND, low=0, high=1),
                    Segment(start=1, source=FIRST, low=3, high=4),
                    Segment(start=2, source=SECOND, low=2),
                ),
                messages=(summary,),
            ),
        ),
        events=(
            ExportedEvent(number=1, last=1, fence=0, at=1, body=SessionCreated()),
            ExportedEvent(
                number=2,
                last=2,
                fence=1,
                at=1,
                turn=TURN,
                body=TurnStarted("bot"),
                messages=Reference(window=FIRST, low=0, high=1),
            ),
            ExportedEvent(number=3, last=3, fence=1, at=2, turn=TURN, body=ToolCalled(CALL, f"{TURN}.0")),
            ExportedEvent(number=4, last=4, fence=1, at=3, turn=TURN, body=ToolReturned(ToolResult("c1", "blue"))),
            ExportedEvent(
                number=5,
                last=5,
                fence=1,
                at=4,
                turn=TURN,
                body=TurnEnded(Completed(), messages=3),
                messages=Reference(window=FIRST, low=1, high=4),
            ),
            ExportedEvent(number=6, last=6, fence=1, at=5, body=WindowOpened(SECOND, FIRST, "compaction", 2)),
        ),
        turns=(
            ExportedTurn(
                id=TURN,
                root=TURN,
                agent="bot",
                state="ended",
                event=2,
                created_at=1,
                first_event=2,
                started_at=1,
                ended_at=4,
                outcome=Completed(),
            ),
        ),
        calls=(
            ToolCallRecord(
                turn=TURN,
                root=TURN,
                ordinal=0,
                call="c1",
                name="look",
                arguments_hash=arguments_hash(CALL.arguments),
                approval="none",
                effect="returned",
                started_at=2,
                ended_at=3,
            ),
        ),
        attachments=(ExportedBlob(hash=BLOB, data=BYTES),),
    )
