"""Maintenance: what keeps the store small and quick. It never reorders anybody's list of sessions."""

from backstay.model.ids import SessionId, TurnId
from backstay.model.session import Deleted
from backstay.store.door import Door
from backstay.store.engine import Transaction
from backstay.store.verbs import deletion, events, running, sessions


def reap_one(tx: Transaction, session: SessionId, owner: str) -> TurnId | None:
    """End the session's running turn if its holder is gone; the turn that was ended."""
    row = tx.one("door", session=session, owner=owner)
    if row is None:
        return None
    door = Door(*row)
    turn = door.running
    return turn if running.reap(tx, door) else None


def expire_some(tx: Transaction, limit: int) -> int:
    """Close sessions whose time has run out; how many."""
    rows = tx.all("lapsed_sessions", now=tx.now, limit=limit)
    for row in rows:
        sessions.expire(tx, Door(*row))
    return len(rows)


def closed_before(tx: Transaction, moment: int, limit: int) -> list[tuple[SessionId, str]]:
    """Sessions that have been closed since before this moment."""
    return [(row[0], row[1]) for row in tx.all("closed_before", moment=moment, limit=limit)]


def delete_closed(tx: Transaction, session: SessionId, owner: str, moment: int) -> Deleted | None:
    """Delete a session if it is still closed since before this moment."""
    row = tx.one("door", session=session, owner=owner)
    if row is None:
        return None
    door = Door(*row)
    if door.state == "open" or door.ended_at is None or door.ended_at >= moment:
        return None
    return deletion.delete(tx, session, owner)


def fold_some(tx: Transaction, moment: int, limit: int) -> tuple[int, int]:
    """Fold the deltas of turns that ended by this moment; how many turns were looked at, and how many rows went."""
    rows = tx.all("foldable_turns", moment=moment, limit=limit)
    gone = sum(events.fold(tx, turn, session, first) for turn, session, first in rows)
    return len(rows), gone
