"""Marks: what a person has started to write in a session, and how far they have read."""

from backstay.errors import InvalidPayload
from backstay.model.codec import check_text
from backstay.model.ids import SessionId
from backstay.model.marks import Marks
from backstay.store.door import find
from backstay.store.engine import Transaction


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
