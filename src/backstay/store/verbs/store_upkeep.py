"""Maintenance: the steps that keep the store small and fast. They never reorder the list of sessions."""

from typing import NamedTuple

from backstay.model.ids import SessionId, TurnId
from backstay.model.session import Deleted, Forecast
from backstay.store.engine import Transaction
from backstay.store.rows import Rows
from backstay.store.session_row import LockedRow, SessionScope, find_if_there, lock_if_there
from backstay.store.verbs import session_changes, session_deletion
from backstay.store.verbs.turns import event_log, lifecycle


class OwnedSession(NamedTuple):
    """A session and its owner."""

    session: SessionId
    owner: str


class _FoldableTurn(NamedTuple):
    """A turn whose deltas can be folded, and its first event."""

    turn: TurnId
    session: SessionId
    first: int


_LAPSED_SESSIONS = Rows("lapsed_sessions", LockedRow)
_FORECAST = Rows("forecast", Forecast)
_CLOSED_BEFORE = Rows("closed_before", OwnedSession)
_FOLDABLE_TURNS = Rows("foldable_turns", _FoldableTurn)


def reap_one(tx: Transaction, session: SessionId, owner: str) -> TurnId | None:
    """End the running turn of a session if its holder is dead. Returns the ended turn."""
    scope = lock_if_there(tx, session, owner)
    if scope is None:
        return None
    with scope as session_row:
        turn = session_row.running
        return turn if lifecycle.reap(tx, session_row) else None


def expire_some(tx: Transaction, limit: int) -> int:
    """Close sessions that have expired. Returns how many."""
    rows = _LAPSED_SESSIONS.all(tx, now=tx.now, limit=limit)
    for row in rows:
        with SessionScope(tx, row) as session_row:
            session_changes.expire(tx, session_row)
    return len(rows)


def forecast(
    tx: Transaction, keep_closed_for: float | None, fold_older_than: float | None, *, forgotten: int
) -> Forecast:
    """Count the effects that a collection and a fold would have now."""
    # Without an age the moments lie before everything, so that these counts are zero.
    closed = 0 if keep_closed_for is None else tx.now - round(keep_closed_for * 1000)
    fold = -1 if fold_older_than is None else tx.now - round(fold_older_than * 1000)
    found = _FORECAST.one(tx, now=tx.now, closed=closed, moment=tx.now - forgotten, fold=fold, limit=1 << 40)
    return found or Forecast()


def closed_before(tx: Transaction, moment: int, limit: int) -> list[OwnedSession]:
    """Sessions that were closed before this moment."""
    return _CLOSED_BEFORE.all(tx, moment=moment, limit=limit)


def delete_closed(tx: Transaction, session: SessionId, owner: str, moment: int) -> Deleted | None:
    """Delete a session if it is still closed since before this moment."""
    row = find_if_there(tx, session, owner)
    if row is None or row.state == "open" or row.ended_at is None or row.ended_at >= moment:
        return None
    return session_deletion.delete(tx, session, owner)


def fold_some(tx: Transaction, moment: int, limit: int) -> tuple[int, int]:
    """Fold the deltas of turns that ended by this moment. Returns the numbers of turns read and rows removed."""
    rows = _FOLDABLE_TURNS.all(tx, moment=moment, limit=limit)
    removed = sum(event_log.fold(tx, row.turn, row.session, row.first) for row in rows)
    return len(rows), removed
