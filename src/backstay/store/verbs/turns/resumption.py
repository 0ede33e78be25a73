"""Resumption: an interrupted turn continues as a new turn that inherits its ledger."""

from collections.abc import Collection

from backstay.errors import Conflict, NothingToDo
from backstay.model.ids import TurnId
from backstay.model.message import Message
from backstay.model.turn import COMPACTOR, OpenTurn
from backstay.store.engine import Transaction
from backstay.store.session_row import LockedRow, SessionRow
from backstay.store.verbs.history import window_segments
from backstay.store.verbs.turns import lifecycle, messages
from backstay.store.verbs.turns.submission import TurnRequest, add, new_row
from backstay.store.verbs.turns.turn_row import LAST_OF_ROOT, TurnRow
from backstay.store.verbs.turns.turn_row import find as find_turn


def resume(tx: Transaction, turn: TurnId, owner: str, agents: Collection[str] | None = None) -> OpenTurn:
    """Open a turn that continues this one: the same input and root; stored output is not repeated.

    Raises:
        NothingToDo: The turn was not interrupted.
        Conflict: It is not the last turn, its input was compacted, or none of the agents is its agent.
    """
    with lifecycle.lock_and_reap(tx, find_turn(tx, turn, owner).session, owner) as session_row:
        # Read again under the lock: the turn may have ended while another writer had it.
        row = find_turn(tx, turn, owner)
        session_row.require_open(tx.now)
        session_row.require_idle("resume a turn")
        if row.outcome != "interrupted" or row.agent in (None, COMPACTOR):
            raise NothingToDo(f"{turn} was not interrupted")
        if row.continued_by is not None:
            raise Conflict(f"{turn} is continued by {row.continued_by}", hint="Resume that one if it was interrupted.")
        if agents is not None and row.agent not in agents:
            raise Conflict(
                f"agent {row.agent} is not served here", hint="Resume it in a process that serves this agent."
            )
        message = _input_of(tx, session_row, turn, row.root)
        new = new_row(tx, session_row, tx.ids.turn(), row.agent, "running")
        new.root = row.root
        opened = lifecycle.open_resumed(tx, session_row, new, message, interrupted=turn)
        new.event = new.first_event = opened.event
        add(tx, new, TurnRequest(to=session_row.id, owner=owner), None)
    return opened


def allow_continuation(tx: Transaction, session_row: LockedRow, turn: TurnRow) -> None:
    """Let a worker continue an interrupted turn, because a person has decided about one of its calls.

    Raises:
        NothingToDo: the turn that continued it has ended.
        Conflict: the session has newer turns.
    """
    last = LAST_OF_ROOT.one(tx, session=session_row.id, root=turn.root)
    if last is None or last.outcome not in (None, "interrupted"):
        raise NothingToDo(f"the turn that continued {turn.id} has ended, and its calls with it")
    if last.outcome == "interrupted":
        _input_of(tx, session_row, last.turn, turn.root)
        # An imported turn waits for a person: this is the decision of one.
        tx.run("release_turn", turn=last.turn)


def _input_of(tx: Transaction, session_row: SessionRow, turn: TurnId, root: TurnId) -> Message:
    """The input of the interrupted turn. It must still be the last turn, and its input be in the window."""
    last = window_segments.last_turn(tx, session_row.window, session_row.length)
    if last is None or not (last.turn == turn or _silent_since(tx, session_row, last.turn, turn, root)):
        raise Conflict(
            f"{turn} is not the last turn of {session_row.id}",
            hint="Send a message: the agent reads the stored output of that turn.",
        )
    if last.location.window != session_row.window:
        raise _input_compacted(session_row, turn)
    first = messages.at(tx, *last.location)
    return first if first.role == "user" else _input_before(tx, session_row, turn, root)


def _silent_since(tx: Transaction, session_row: SessionRow, last: TurnId, turn: TurnId, root: TurnId) -> bool:
    """Whether this is the newest turn of its root, and the last message is of an earlier turn of that root."""
    newest = LAST_OF_ROOT.one(tx, session=session_row.id, root=root)
    return newest is not None and newest.turn == turn and find_turn(tx, last, session_row.owner).root == root


def _input_before(tx: Transaction, session_row: SessionRow, turn: TurnId, root: TurnId) -> Message:
    """The input of a turn that was itself a resumption: it is a message of the root turn."""
    for segment in reversed(window_segments.segments(tx, session_row.window, session_row.length)):
        for message in messages.read_back(tx, segment, limit=10_000):
            if message.turn == root and message.role == "user":
                return message
    raise _input_compacted(session_row, turn)


def _input_compacted(session_row: SessionRow, turn: TurnId) -> Conflict:
    return Conflict(
        f"the input of {turn} was compacted in {session_row.id}", hint="Send a message: the agent reads the summary."
    )
