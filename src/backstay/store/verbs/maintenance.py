"""Maintenance: what keeps the store small and quick. It never reorders anybody's list of sessions."""

from backstay.model.ids import SessionId, TurnId
from backstay.model.session import Deleted, Forecast
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


def forecast(
    tx: Transaction, keep_closed_for: float | None, fold_older_than: float | None, *, forgotten: int
) -> Forecast:
    """What would be expired, deleted, dropped and folded now. Nothing was closed or ended before time began."""
    closed = 0 if keep_closed_for is None else tx.now - round(keep_closed_for * 1000)
    fold = -1 if fold_older_than is None else tx.now - round(fold_older_than * 1000)
    row = tx.one("forecast", now=tx.now, closed=closed, moment=tx.now - forgotten, fold=fold, limit=1 << 40)
    return Forecast() if row is None else Forecast(expired=row[0], deleted=row[1], blobs=row[2], folded=row[3])


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
