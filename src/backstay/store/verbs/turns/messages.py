"""Messages: appended to the window of a session, and read from it."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from backstay.errors import CorruptRecord, NotFound
from backstay.model.codec import WORDS, Encoded, decode_parts, write_parts
from backstay.model.content import Part, Role, Text, attachments_in
from backstay.model.ids import MessageId, TurnId, WindowId
from backstay.model.message import Message, NewMessage
from backstay.model.session import PREVIEW
from backstay.store.engine import Transaction
from backstay.store.rows import Rows
from backstay.store.session_row import LockedRow
from backstay.store.verbs import blob_store
from backstay.store.verbs.history.window_segments import END, Layout, WindowSegment, origin_of, segments

_LOOK_BACK = 8


def _message(  # noqa: PLR0917  # called with the columns of a row
    position: int, id: MessageId, turn: TurnId | None, role: Role, partial: int, format: int, body: str, at: int
) -> Message:
    # Most messages are plain text, which needs no decoder.
    parts = (Text(body),) if format == WORDS else decode_parts(id, format, body)
    return Message(id=id, position=position, turn=turn, role=role, parts=parts, at=at, partial=partial == 1)


_OLDEST_FIRST = Rows("messages_in", _message)
_NEWEST_FIRST = Rows("messages_in_reverse", _message)


class Written(NamedTuple):
    """A message that is about to be stored, with its encoded parts."""

    message: NewMessage
    body: Encoded


def written(messages: Iterable[NewMessage]) -> list[Written]:
    """Encode messages without checks: the bodies of an agent were checked when they arrived."""
    return [Written(message, write_parts(message.parts)) for message in messages]


def append(
    tx: Transaction,
    session_row: LockedRow,
    turn: TurnId | None,
    new: Sequence[Written],
    ids: Iterable[MessageId] | None = None,
) -> list[MessageId]:
    """Append messages to the window of the session, under these ids or new ones."""
    names = [tx.ids.message() for _ in new] if ids is None else [*ids]
    for name, written in zip(names, new, strict=True):
        insert(tx, session_row, name, turn, written, position=session_row.length)
        session_row.length += 1
    _show_last(session_row, new)
    return names


def append_new(
    tx: Transaction, session_row: LockedRow, turn: TurnId, new: Sequence[Written], ids: Iterable[MessageId]
) -> tuple[Message, ...]:
    """Append messages under these ids. Returns them as a reader will find them."""
    first = session_row.length
    names = append(tx, session_row, turn, new, ids)
    return tuple(
        Message(
            id=name,
            position=first + place,
            turn=turn,
            role=message.role,
            parts=message.parts,
            at=tx.now,
            partial=message.partial,
        )
        for place, (name, (message, _)) in enumerate(zip(names, new, strict=True))
    )


def insert(
    tx: Transaction, session_row: LockedRow, name: MessageId, turn: TurnId | None, new: Written, *, position: int
) -> None:
    """Store one message at a position of the window that no inherited segment covers."""
    message, body = new
    tx.run(
        "add_message",
        window=session_row.window,
        position=position,
        message=name,
        turn=turn,
        role=message.role,
        partial=message.partial,
        format=body.format,
        body=body.text,
        now=tx.now,
    )
    reference_blobs(tx, session_row.owner, name, message.parts)
    session_row.text_bytes += body.size


def reference_blobs(tx: Transaction, owner: str, holder: str, parts: Iterable[Part]) -> None:
    """Reference these attachments, so that they exist as long as their message or waiting turn."""
    for file in attachments_in(parts):
        blob_store.use(tx, owner, file.blob, holder)


def read(tx: Transaction, segment: WindowSegment, *, low: int = 0, high: int = END, limit: int = END) -> list[Message]:
    """The messages of a segment at the window positions low to high, oldest first."""
    return _read(tx, _OLDEST_FIRST, segment.between(low, high), limit)


def read_back(tx: Transaction, segment: WindowSegment, *, limit: int) -> list[Message]:
    """The last messages of a segment, newest first."""
    return _read(tx, _NEWEST_FIRST, segment, limit)


def _read(tx: Transaction, rows: Rows[Message], part: WindowSegment | None, limit: int) -> list[Message]:
    if part is None:
        return []
    shift = part.start - part.low
    return rows.all(tx, window=part.source, low=part.low, high=part.high, limit=limit, shift=shift)


def at(tx: Transaction, window: WindowId, position: int) -> Message:
    """The message at this position of a window."""
    for segment in segments(tx, window, position + 1):
        found = read(tx, segment, low=position, high=position + 1, limit=1)
        if found:
            return found[0]
    raise NotFound(f"{window} has no message at position {position}")


def turn_of(tx: Transaction, message: MessageId) -> TurnId:
    """The turn of a message that must have one. Raises `CorruptRecord` if it has none."""
    origin = origin_of(tx, message)
    if origin is None or origin.turn is None:
        raise CorruptRecord(message, "does not belong to a turn")
    return origin.turn


def show_last_of_window(tx: Transaction, session_row: LockedRow, layout: Layout | None = None) -> None:
    """Set the preview to the last text in the window of the session, or among as many messages of this layout."""
    session_row.preview = None
    window = session_row.window if layout is None else layout.window
    for segment in reversed(segments(tx, window, session_row.length, layout)):
        for message in read_back(tx, segment, limit=_LOOK_BACK):
            session_row.preview = _shown(message)
            if session_row.preview:
                return


def _show_last(session_row: LockedRow, new: Sequence[Written]) -> None:
    for message, _ in reversed(new):
        shown = _shown(message)
        if shown:
            session_row.preview = shown
            return


def _shown(message: Message | NewMessage) -> str | None:
    """The preview of a message: the beginning of its text, if a person or an agent wrote it."""
    if message.role in ("user", "assistant"):
        for part in message.parts:
            if isinstance(part, Text) and (shown := _preview(part.text)):
                return shown
    return None


def _preview(text: str) -> str:
    plain = text[:PREVIEW]
    # Most texts begin with printable words on one line.
    if plain.isprintable() and "  " not in plain:
        return plain.strip()
    # A NUL is valid text, but PostgreSQL does not store it.
    return " ".join(text[: PREVIEW * 2].replace("\0", " ").split())[:PREVIEW]
