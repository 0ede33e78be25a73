"""The queue of waiting turns: withdraw, hold, release, edit, reorder."""

from typing import NamedTuple

from backstay.errors import Conflict, NothingToDo, SessionBusy
from backstay.model.codec import encode_parts
from backstay.model.content import Part, check_input
from backstay.model.event import TurnEdited, TurnHeld, TurnReleased, TurnsReordered
from backstay.model.ids import SessionId, TurnId
from backstay.model.turn import Cancelled, TurnInfo
from backstay.store.engine import Transaction
from backstay.store.rows import Rows
from backstay.store.session_row import SessionScope
from backstay.store.verbs import blob_store, owner_totals
from backstay.store.verbs.turns import event_log, lifecycle, messages
from backstay.store.verbs.turns.turn_row import WAITING_TURNS, TurnRow, find_row
from backstay.store.verbs.turns.turn_row import find as find_turn


class _QueuedTurn(NamedTuple):
    """A waiting turn, and its position in the queue."""

    turn: TurnId
    place: int


_QUEUE_ORDER = Rows("queue_order", _QueuedTurn)


def withdraw(tx: Transaction, turn: TurnId, owner: str) -> TurnInfo:
    """Withdraw a turn that still waits."""
    with lock_session_of(tx, turn, owner) as session_row:
        row = _find_waiting(tx, turn, owner)
        lifecycle.end_waiting(tx, session_row, row, Cancelled("withdrawn"))
        lifecycle.start_next(tx, session_row, ())
    return find_row(tx, turn, owner).value()


def hold(tx: Transaction, turn: TurnId, owner: str) -> TurnInfo:
    """Hold a waiting turn: no worker starts it before it is released. Any other turn is not changed."""
    with lock_session_of(tx, turn, owner) as session_row:
        row = find_row(tx, turn, owner)
        if row.state == "waiting" and not row.held and row.taken_by is None:
            tx.run("hold_turn", turn=turn)
            session_row.held += 1
            session_row.steering -= row.steer
            session_row.revision += 1
            event_log.append_event(tx, session_row, TurnHeld(), turn)
    return find_row(tx, turn, owner).value()


def release(tx: Transaction, turn: TurnId, owner: str) -> TurnInfo:
    """Release a held turn: it starts when it is next. A turn that is not held is not changed."""
    with lock_session_of(tx, turn, owner) as session_row:
        row = find_row(tx, turn, owner)
        if row.state == "waiting" and row.held:
            session_row.require_open(tx.now)
            tx.run("release_turn", turn=turn)
            session_row.held -= 1
            session_row.steering += row.steer
            session_row.revision += 1
            event_log.append_event(tx, session_row, TurnReleased(), turn)
            # Finished messages need no agent: they are stored now if they are next.
            lifecycle.start_next(tx, session_row, ())
    return find_row(tx, turn, owner).value()


def edit_waiting(tx: Transaction, turn: TurnId, owner: str, parts: tuple[Part, ...]) -> TurnInfo:
    """Change the input of a turn that still waits."""
    body = encode_parts(parts, tx.limits)
    check_input(parts)
    with lock_session_of(tx, turn, owner) as session_row:
        row = _find_waiting(tx, turn, owner)
        if row.is_record:
            raise Conflict(f"{turn} carries finished messages, not an input", hint="Withdraw it and record again.")
        if body == (row.format, row.input):
            return row.value()
        event, longer = TurnEdited(parts), body.size - row.input_bytes
        owner_totals.require_text(tx, session_row, longer + event_log.text_size(event))
        session_row.text_bytes += longer
        messages.reference_blobs(tx, owner, turn, parts)
        blob_store.release_others(tx, turn, parts)
        tx.run("edit_turn", turn=turn, input=body.text, format=body.format)
        session_row.revision += 1
        event_log.append_event(tx, session_row, event, turn)
    return find_row(tx, turn, owner).value()


def reorder(
    tx: Transaction, session: SessionId, owner: str, order: tuple[TurnId, ...], expect_revision: int | None
) -> tuple[TurnInfo, ...]:
    """Put the waiting turns into another order. Raises `Conflict` unless the order names each of them once."""
    with lifecycle.lock_and_reap(tx, session, owner) as session_row:
        session_row.require_open(tx.now)
        session_row.require_revision(expect_revision)
        waiting = _QUEUE_ORDER.all(tx, session=session)
        if sorted(order) != sorted(queued.turn for queued in waiting):
            raise Conflict(
                f"{session} does not have exactly these waiting turns",
                hint="Read the waiting turns, and name each once.",
            )
        if order != tuple(queued.turn for queued in waiting):
            for turn, old in zip(order, waiting, strict=True):
                tx.run("move_turn", turn=turn, place=old.place)
            session_row.revision += 1
            event_log.append_event(tx, session_row, TurnsReordered(order))
            # Finished messages that are first now need no agent.
            lifecycle.start_next(tx, session_row, ())
    return tuple(row.value() for row in WAITING_TURNS.all(tx, session=session))


def lock_session_of(tx: Transaction, turn: TurnId, owner: str) -> SessionScope:
    """Lock the session of a turn. Raises `NotFound`. Read the row of the turn again after this, under the lock."""
    return lifecycle.lock_and_reap(tx, find_turn(tx, turn, owner).session, owner)


def _find_waiting(tx: Transaction, turn: TurnId, owner: str) -> TurnRow:
    row = find_row(tx, turn, owner)
    if row.state == "running":
        raise SessionBusy(f"{turn} is already running", hint="Cancel it instead.")
    if row.state == "ended":
        raise NothingToDo(f"{turn} has already ended")
    require_untaken(row)
    return row


def require_untaken(row: TurnRow) -> None:
    """Raise `NothingToDo` if a running turn took this one as steering."""
    if row.taken_by is not None:
        raise NothingToDo(f"{row.id} was taken by {row.taken_by}", hint="Cancel that turn instead.")
