"""Messages: appending them to a session's window, and reading them back."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from backstay.errors import CorruptRecord, NotFound
from backstay.model.codec import Encoded, decode_parts, write_parts
from backstay.model.content import Attachment, Part, Text
from backstay.model.ids import MessageId, TurnId, WindowId
from backstay.model.message import Message, NewMessage
from backstay.model.session import PREVIEW
from backstay.store.door import Door
from backstay.store.engine import Transaction
from backstay.store.verbs import blobs
from backstay.store.verbs.windows import END, Stretch, stretches

_LOOK_BACK = 8


class Written(NamedTuple):
    """A message that is about to be stored, and its parts as they will be."""

    message: NewMessage
    body: Encoded


def written(said: Iterable[NewMessage]) -> list[Written]:
    """Messages that need no more checks: what an agent streamed was checked when it came."""
    return [Written(message, write_parts(message.parts)) for message in said]


def append(
    tx: Transaction, door: Door, turn: TurnId | None, said: Sequence[Written], ids: Iterable[MessageId] | None = None
) -> list[MessageId]:
    """Add messages at the end of the session's window, under these ids or new ones."""
    names = [tx.ids.message() for _ in said] if ids is None else [*ids]
    for name, written in zip(names, said, strict=True):
        put(tx, door, name, turn, written, position=door.length)
        door.length += 1
    _show_last(door, said)
    return names


def put(tx: Transaction, door: Door, name: MessageId, turn: TurnId | None, said: Written, *, position: int) -> None:
    """Write down one message at a position of the session's window that is its own."""
    message, body = said
    tx.run(
        "add_message",
        window=door.window,
        position=position,
        message=name,
        turn=turn,
        role=message.role,
        partial=message.partial,
        format=body.format,
        body=body.text,
        now=tx.now,
    )
    keep_blobs(tx, door.owner, name, message.parts)


def keep_blobs(tx: Transaction, owner: str, holder: str, parts: Iterable[Part]) -> None:
    """Let these attachments live as long as the message or waiting turn that brings them."""
    for part in parts:
        if isinstance(part, Attachment):
            blobs.use(tx, owner, part.blob, holder)


def read(tx: Transaction, stretch: Stretch, *, low: int = 0, high: int = END, limit: int = END) -> list[Message]:
    """The messages of a stretch whose positions in the window lie between low and high, oldest first."""
    return _read(tx, "messages_in", stretch.between(low, high), limit)


def read_back(tx: Transaction, stretch: Stretch, *, limit: int) -> list[Message]:
    """The last messages of a stretch, newest first."""
    return _read(tx, "messages_in_reverse", stretch, limit)


def _read(tx: Transaction, query: str, part: Stretch | None, limit: int) -> list[Message]:
    if part is None:
        return []
    rows = tx.all(query, window=part.source, low=part.low, high=part.high, limit=limit)
    shift = part.start - part.low
    # A thousand messages pass here at once: one expression, no call per message but the decoder's.
    return [
        Message(
            id=message,
            position=position + shift,
            turn=turn,
            role=role,
            parts=decode_parts(message, version, body),
            at=at,
            partial=partial == 1,
        )
        for position, message, turn, role, partial, version, body, at in rows
    ]


def at(tx: Transaction, window: WindowId, position: int) -> Message:
    """The message at this position of a window."""
    for stretch in stretches(tx, window, position + 1):
        found = read(tx, stretch, low=position, high=position + 1, limit=1)
        if found:
            return found[0]
    raise NotFound(f"there is no message at {position} of {window}")


def place_of(tx: Transaction, message: MessageId) -> tuple[WindowId, int, int]:
    """Where a message was said, as a stretch of one."""
    row = tx.one("message_place", message=message)
    if row is None:
        raise CorruptRecord(message, "is missing")
    return row[0], row[1], row[1] + 1


def turn_of(tx: Transaction, message: MessageId) -> TurnId:
    """The turn in which a message was said."""
    row = tx.one("message_place", message=message)
    if row is None or row[2] is None:
        raise CorruptRecord(message, "is of no turn")
    turn: TurnId = row[2]
    return turn


def show_last_of_window(tx: Transaction, door: Door) -> None:
    """Make the preview say what was said last in the session's window now."""
    door.preview = None
    for stretch in reversed(stretches(tx, door.window, door.length)):
        for message in read_back(tx, stretch, limit=_LOOK_BACK):
            door.preview = _shown(message)
            if door.preview:
                return


def _show_last(door: Door, said: Sequence[Written]) -> None:
    for message, _ in reversed(said):
        shown = _shown(message)
        if shown:
            door.preview = shown
            return


def _shown(message: Message | NewMessage) -> str | None:
    """What a list shows of a message: its first words, if a person or an agent said any."""
    if message.role in ("user", "assistant"):
        for part in message.parts:
            if isinstance(part, Text) and (shown := _preview(part.text)):
                return shown
    return None


def _preview(text: str) -> str:
    plain = text[:PREVIEW]
    # Most texts begin with words on one line, which need no tidying.
    if plain.isprintable() and "  " not in plain:
        return plain.strip()
    # A NUL is valid text and no database takes it bare.
    return " ".join(text[: PREVIEW * 2].replace("\0", " ").split())[:PREVIEW]
