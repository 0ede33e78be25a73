"""Cancellation of a turn that runs or waits."""

from backstay.model.ids import TurnId
from backstay.model.turn import Cancelled, TurnInfo
from backstay.store.engine import Transaction
from backstay.store.verbs.turns import lifecycle
from backstay.store.verbs.turns.submission import request_cancel
from backstay.store.verbs.turns.turn_queue import lock_session_of, require_untaken
from backstay.store.verbs.turns.turn_row import find_row


def cancel(tx: Transaction, turn: TurnId, owner: str, take: bool) -> TurnInfo:
    """Ask for a turn to stop. A waiting turn ends at once; with `take`, a running one does too."""
    with lock_session_of(tx, turn, owner) as session_row:
        row = find_row(tx, turn, owner)
        if row.state == "running" and take:
            # The holder did not answer in time: the fence grows, so that its later writes are rejected.
            session_row.fence += 1
            lifecycle.end(tx, session_row, row, Cancelled("cancelled"))
            lifecycle.start_next(tx, session_row, ())
        elif row.state == "running":
            request_cancel(tx, session_row, turn)
        elif row.state == "waiting":
            require_untaken(row)
            lifecycle.end_waiting(tx, session_row, row, Cancelled("cancelled while it waited"))
            lifecycle.start_next(tx, session_row, ())
    return find_row(tx, turn, owner).value()
