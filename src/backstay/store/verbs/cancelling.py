"""Changing one's mind: cancel a turn, edit, withdraw or reorder those that wait, approve or deny a tool call."""

from backstay.errors import Conflict, NothingToDo, SessionBusy
from backstay.model.codec import encode_parts
from backstay.model.content import Part, check_input
from backstay.model.event import ApprovalDecided, TurnEdited, TurnsReordered
from backstay.model.ids import SessionId, TurnId
from backstay.model.turn import Call, Cancelled, Turn
from backstay.store.door import Door, find, leave
from backstay.store.engine import Transaction
from backstay.store.verbs import blobs, events, messages, running
from backstay.store.verbs.submitting import ask_to_cancel
from backstay.store.verbs.turns import TurnRow, call_value, find_row
from backstay.store.verbs.turns import find as find_turn


def cancel(tx: Transaction, turn: TurnId, owner: str, take: bool) -> Turn:
    """Ask for a turn to stop. One that waits ends at once; with `take`, a running one does too."""
    door, row = _enter(tx, turn, owner)
    if row.state == "running" and take:
        # The holder did not answer: from here on its writes are refused.
        door.fence += 1
        running.end(tx, door, row, Cancelled("cancelled"))
        running.go_on(tx, door, ())
    elif row.state == "running":
        ask_to_cancel(tx, door, turn)
    elif row.state == "waiting":
        _require_untaken(row)
        running.end_waiting(tx, door, row, Cancelled("cancelled while it waited"))
        running.go_on(tx, door, ())
    leave(tx, door)
    return find_row(tx, turn, owner).value()


def withdraw(tx: Transaction, turn: TurnId, owner: str) -> Turn:
    """Take back a turn that still waits."""
    door, row = _enter_waiting(tx, turn, owner)
    running.end_waiting(tx, door, row, Cancelled("withdrawn"))
    running.go_on(tx, door, ())
    leave(tx, door)
    return find_row(tx, turn, owner).value()


def edit_waiting(tx: Transaction, turn: TurnId, owner: str, parts: tuple[Part, ...]) -> Turn:
    """Change the input of a turn that still waits."""
    body = encode_parts(parts, tx.limits)
    check_input(parts)
    door, row = _enter_waiting(tx, turn, owner)
    if row.is_record:
        raise Conflict(f"{turn} carries finished messages, not an input", hint="Withdraw it and record again.")
    messages.keep_blobs(tx, owner, turn, parts)
    blobs.release_others(tx, turn, parts)
    tx.run("edit_turn", turn=turn, input=body.text, format=body.format)
    door.revision += 1
    events.tell(tx, door, TurnEdited(parts), turn)
    leave(tx, door)
    return find_row(tx, turn, owner).value()


def reorder(
    tx: Transaction, session: SessionId, owner: str, order: tuple[TurnId, ...], expect_revision: int | None
) -> tuple[Turn, ...]:
    """Give the waiting turns each other's places."""
    door = find(tx, session, owner)
    running.reap(tx, door)
    door.require_open(tx.now)
    door.require_revision(expect_revision)
    waiting = tx.all("waiting_places", session=session)
    if sorted(order) != sorted(turn for turn, _ in waiting):
        raise Conflict(
            f"{session} has other turns waiting than these", hint="Read what waits, and name each turn once."
        )
    if order != tuple(turn for turn, _ in waiting):
        for turn, (_, place) in zip(order, waiting, strict=True):
            tx.run("move_turn", turn=turn, place=place)
        door.revision += 1
        events.tell(tx, door, TurnsReordered(order))
        # Finished messages that come first now need nobody to run them.
        running.go_on(tx, door, ())
        leave(tx, door)
    return tuple(TurnRow(*row).value() for row in tx.all("waiting_turns", session=session))


def decide(tx: Transaction, turn: TurnId, call: str, owner: str, *, approved: bool, arguments_hash: str | None) -> Call:
    """Approve or deny a tool call that asked; the decision is bound to the arguments that were shown."""
    door, made_in = _enter(tx, turn, owner)
    row = tx.one("call", turn=turn, call=call)
    if made_in.outcome not in (None, "interrupted"):
        raise NothingToDo(f"{turn} has ended, and its calls with it")
    if row is None:
        raise NothingToDo(f"{turn} made no tool call {call!r}")
    asked, wanted = call_value(row), "approved" if approved else "denied"
    if arguments_hash is not None and arguments_hash != asked.arguments_hash:
        raise Conflict(f"tool call {call!r} has other arguments than were shown", hint="Look at it again.")
    if asked.approval == wanted:
        return asked
    if asked.approval != "asked" or asked.effect != "called":
        raise NothingToDo(f"tool call {call!r} of {turn} is not waiting for approval")
    door.require_open(tx.now)
    # A turn that was interrupted runs no tool any more; the one that goes on for it does, and says when.
    starts = approved and made_in.state == "running"
    tx.run("set_approval", turn=turn, call=call, approval=wanted, started_at=tx.now if starts else None)
    door.revision += 1
    events.tell(tx, door, ApprovalDecided(call, approved), turn)
    leave(tx, door)
    return call_value(tx.one("call", turn=turn, call=call) or row)


def _enter(tx: Transaction, turn: TurnId, owner: str) -> tuple[Door, TurnRow]:
    door = find(tx, find_turn(tx, turn, owner).session, owner)
    running.reap(tx, door)
    return door, find_row(tx, turn, owner)


def _enter_waiting(tx: Transaction, turn: TurnId, owner: str) -> tuple[Door, TurnRow]:
    door, row = _enter(tx, turn, owner)
    if row.state == "running":
        raise SessionBusy(f"{turn} is already running", hint="Cancel it instead.")
    if row.state == "ended":
        raise NothingToDo(f"{turn} has already ended")
    _require_untaken(row)
    return door, row


def _require_untaken(row: TurnRow) -> None:
    if row.taken_by is not None:
        raise NothingToDo(f"{row.id} was taken by {row.taken_by}", hint="Cancel that turn instead.")
