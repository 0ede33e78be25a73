"""The compaction turn: a window is summarised in a turn, so that no other turn runs meanwhile."""

from backstay.errors import HistoryChanged, NothingToDo
from backstay.model.ids import SessionId
from backstay.model.message import MessagePage
from backstay.model.turn import COMPACTOR, Compacting, OpenTurn
from backstay.store.engine import Transaction
from backstay.store.session_row import LockedRow
from backstay.store.verbs.turns import lifecycle, messages
from backstay.store.verbs.turns.submission import TurnRequest, add, new_row
from backstay.store.verbs.turns.turn_row import find_row


def compact(tx: Transaction, session: SessionId, owner: str, seen: MessagePage | None) -> Compacting:
    """Open a compaction turn, or return the one that runs. Raises `HistoryChanged` if the window is not as seen."""
    with lifecycle.lock_and_reap(tx, session, owner) as session_row:
        session_row.require_open(tx.now)
        if session_row.running is not None:
            row = find_row(tx, session_row.running, owner)
            if row.agent == COMPACTOR:
                return Compacting(turn=row.value())
        session_row.require_free()
        # Messages keep their positions in a window forever: equal length is equal content.
        if seen is not None and (seen.window, seen.length) != (session_row.window, session_row.length):
            raise HistoryChanged(f"{session} has changed since it was read", hint="Read it again, then decide.")
        opened = begin(tx, session_row)
    return Compacting(turn=find_row(tx, opened.id, owner).value(), opened=opened)


def begin(tx: Transaction, session_row: LockedRow) -> OpenTurn:
    """Open a compaction turn now. Raises `NothingToDo` if the window is empty."""
    if not session_row.length:
        raise NothingToDo(f"{session_row.id} has nothing to compact")
    last = messages.at(tx, session_row.window, session_row.length - 1)
    row = new_row(tx, session_row, tx.ids.turn(), COMPACTOR, "running")
    opened = lifecycle.open_compaction(tx, session_row, row.id, last)
    row.event = row.first_event = opened.event
    add(tx, row, TurnRequest(to=session_row.id, owner=session_row.owner), None)
    return opened
