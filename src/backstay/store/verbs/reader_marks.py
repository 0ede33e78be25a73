"""Marks of a reader: the draft, the last event that was read, and turns that are hidden."""

from backstay.errors import Conflict, InvalidPayload
from backstay.model.codec import check_text
from backstay.model.ids import SessionId, TurnId
from backstay.model.marks import Marks
from backstay.model.turn import TurnInfo
from backstay.store.engine import Transaction
from backstay.store.rows import Rows
from backstay.store.session_row import find, lock_session
from backstay.store.verbs import owner_totals
from backstay.store.verbs.turns import lifecycle, turn_row

_MARKS = Rows("marks", Marks)


def get(tx: Transaction, session: SessionId, owner: str) -> Marks:
    """The marks of the owner in a session."""
    find(tx, session, owner)
    return _MARKS.one(tx, session=session, owner=owner) or Marks()


def save_draft(tx: Transaction, session: SessionId, owner: str, text: str) -> Marks:
    """Store the draft of a message. An empty text deletes it."""
    check_text("the draft", text, tx.limits.draft_bytes)
    with lock_session(tx, session, owner) as session_row:
        session_row.require_open(tx.now)
        before = _MARKS.one(tx, session=session, owner=owner) or Marks()
        if before.draft == text:
            return before
        longer = len(text.encode()) - len(before.draft.encode())
        if longer > 0:
            owner_totals.require_text(tx, session_row, longer)
        session_row.text_bytes += longer
        tx.run("set_draft", session=session, owner=owner, draft=text, now=tx.now)
    return get(tx, session, owner)


def mark_read(tx: Transaction, session: SessionId, owner: str, number: int) -> Marks:
    """Store that the owner has read up to this event."""
    session_row = find(tx, session, owner)
    if not isinstance(number, int) or not 0 <= number <= session_row.last_event:
        raise InvalidPayload(
            f"{session} has {session_row.last_event} events, not {number!r}", hint="Pass an event's number."
        )
    if get(tx, session, owner).read_to < number:
        tx.run("set_read", session=session, owner=owner, read_to=number, now=tx.now)
    return get(tx, session, owner)


def forget(tx: Transaction, turn: TurnId, owner: str) -> TurnInfo:
    """Hide an ended turn from reads by its id. Raises `Conflict` if it has not ended."""
    with lifecycle.lock_and_reap(tx, turn_row.find(tx, turn, owner).session, owner):
        row = turn_row.find(tx, turn, owner)
    if row.state != "ended":
        raise Conflict(f"{turn} has not ended", hint="Cancel it first.")
    if not row.forgotten:
        tx.run("forget_turn", turn=turn)
    row.forgotten = 1
    return row.value()
