"""Marks: what a person has begun to write in a session, how far they have read, which turns they want forgotten."""

from backstay.errors import Conflict, InvalidPayload
from backstay.model.codec import check_text
from backstay.model.ids import SessionId, TurnId
from backstay.model.marks import Marks
from backstay.model.turn import Turn
from backstay.store.door import find
from backstay.store.engine import Transaction
from backstay.store.verbs import turns


def get(tx: Transaction, session: SessionId, owner: str) -> Marks:
    """The owner's marks in a session."""
    find(tx, session, owner)
    row = tx.one("marks", session=session, owner=owner)
    return Marks() if row is None else Marks(draft=row[0], read_to=row[1])


def save_draft(tx: Transaction, session: SessionId, owner: str, text: str) -> Marks:
    """Keep an unfinished message; empty text drops it."""
    check_text("the draft", text, tx.limits.draft_bytes)
    find(tx, session, owner).require_open(tx.now)
    tx.run("set_draft", session=session, owner=owner, draft=text, now=tx.now)
    return get(tx, session, owner)


def mark_read(tx: Transaction, session: SessionId, owner: str, number: int) -> Marks:
    """Everything up to this event was read."""
    door = find(tx, session, owner)
    if not isinstance(number, int) or not 0 <= number <= door.last_event:
        raise InvalidPayload(f"{session} has {door.last_event} events, not {number!r}", hint="Pass an event's number.")
    tx.run("set_read", session=session, owner=owner, read_to=number, now=tx.now)
    return get(tx, session, owner)


def forget(tx: Transaction, turn: TurnId, owner: str) -> Turn:
    """Nobody wants to be shown this turn by its name any more."""
    row = turns.find(tx, turn, owner)
    find(tx, row.session, owner)
    if row.state != "ended":
        raise Conflict(f"{turn} has not ended", hint="Cancel it first.")
    tx.run("forget_turn", turn=turn)
    row.forgotten = 1
    return row.value()
