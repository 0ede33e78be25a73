"""Messages: appending them to a session's window, and reading them back."""

from collections.abc import Iterable, Sequence

from backstay.model.codec import FORMAT, decode_parts, write_parts
from backstay.model.content import Attachment, Part
from backstay.model.ids import MessageId, TurnId
from backstay.model.message import Message, NewMessage
from backstay.store.door import Door
from backstay.store.engine import Row, Transaction
from backstay.store.verbs import blobs
from backstay.store.verbs.windows import END, Stretch, stretches

PREVIEW = 160
_LOOK_BACK = 8


def append(tx: Transaction, door: Door, turn: TurnId | None, messages: Sequence[NewMessage]) -> list[MessageId]:
    """Add messages at the end of the session's window."""
    ids = []
    for message in messages:
        new = tx.ids.message()
        tx.run(
            "add_message",
            window=door.window,
            position=door.length,
            message=new,
            turn=turn,
            role=message.role,
            partial=message.partial,
            format=FORMAT,
            body=write_parts(message.parts),
            now=tx.now,
        )
        keep_blobs(tx, door.owner, new, message.parts)
        door.length += 1
        ids.append(new)
    _show_last(door, messages)
    return ids


def keep_blobs(tx: Transaction, owner: str, holder: str, parts: Iterable[Part]) -> None:
    """Let these attachments live as long as the message or waiting turn that brings them."""
    for part in parts:
        if isinstance(part, Attachment):
            blobs.use(tx, owner, part.blob, holder)


def read(tx: Transaction, stretch: Stretch, *, low: int = 0, high: int = END, limit: int = END) -> list[Message]:
    """The messages of a stretch whose positions in the window lie between low and high, oldest first."""
    part = stretch.between(low, high)
    if part is None:
        return []
    rows = tx.all("messages_in", window=part.source, low=part.low, high=part.high, limit=limit)
    shift = part.start - part.low
    return [_message(row, shift) for row in rows]


def read_back(tx: Transaction, stretch: Stretch, *, low: int = 0, high: int = END, limit: int = END) -> list[Message]:
    """The same, newest first."""
    part = stretch.between(low, high)
    if part is None:
        return []
    rows = tx.all("messages_in_reverse", window=part.source, low=part.low, high=part.high, limit=limit)
    shift = part.start - part.low
    return [_message(row, shift) for row in rows]


def show_last_of_window(tx: Transaction, door: Door) -> None:
    """Make the preview say what was said last in the session's window now."""
    door.preview = None
    for stretch in reversed(stretches(tx, door.window, door.length)):
        for message in read_back(tx, stretch, limit=_LOOK_BACK):
            if message.role in ("user", "assistant") and message.text.strip():
                door.preview = _preview(message.text)
                return


def _show_last(door: Door, messages: Iterable[NewMessage]) -> None:
    for message in messages:
        if message.role in ("user", "assistant") and message.text.strip():
            door.preview = _preview(message.text)


def _preview(text: str) -> str:
    return " ".join(text[: PREVIEW * 2].split())[:PREVIEW]


def _message(row: Row, shift: int) -> Message:
    position, message, turn, role, partial, version, body, at = row
    return Message(
        id=message,
        position=position + shift,
        turn=turn,
        role=role,
        parts=decode_parts(message, version, body),
        at=at,
        partial=bool(partial),
    )
