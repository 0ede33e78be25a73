"""Resuming: a turn that was interrupted goes on as a new turn that inherits its ledger."""

from backstay.errors import Conflict, NothingToDo
from backstay.model.ids import TurnId
from backstay.model.message import Message
from backstay.model.turn import COMPACTOR, OpenTurn
from backstay.store.door import Door, find, leave
from backstay.store.engine import Transaction
from backstay.store.verbs import messages, running, windows
from backstay.store.verbs.submitting import Request, add, new_row
from backstay.store.verbs.turns import find as find_turn


def resume(tx: Transaction, turn: TurnId, owner: str) -> OpenTurn:
    """Open a turn that goes on where this one was interrupted: same input, same root, nothing said twice."""
    door = find(tx, find_turn(tx, turn, owner).session, owner)
    running.reap(tx, door)
    # Looked at again behind the door: it may have ended while another writer was waited for.
    row = find_turn(tx, turn, owner)
    door.require_open(tx.now)
    door.require_idle("resume a turn")
    if row.outcome != "interrupted" or row.agent in (None, COMPACTOR):
        raise NothingToDo(f"{turn} was not interrupted")
    said = _input_of(tx, door, turn, row.root)
    new = new_row(tx, door, tx.ids.turn(), row.agent, "running")
    new.root = row.root
    opened = running.go_on_with(tx, door, new, said)
    new.event = new.first_event = opened.event
    add(tx, new, Request(to=door.id, owner=owner), None)
    leave(tx, door)
    return opened


def _input_of(tx: Transaction, door: Door, turn: TurnId, root: TurnId) -> Message:
    """What the interrupted turn was asked; it must still be the last thing that happened, and be read."""
    last = windows.last_turn(tx, door.window, door.length)
    if last is None or last[0] != turn:
        raise Conflict(f"{turn} is not the last turn of {door.id}", hint="Retry or edit it instead.")
    if last[1].window != door.window:
        raise _left_behind(door, turn)
    first = messages.at(tx, *last[1])
    return first if first.role == "user" else _input_before(tx, door, turn, root)


def _input_before(tx: Transaction, door: Door, turn: TurnId, root: TurnId) -> Message:
    """The input of a turn that was itself resumed: said in its root turn, further back."""
    for stretch in reversed(windows.stretches(tx, door.window, door.length)):
        for message in messages.read_back(tx, stretch, limit=10_000):
            if message.turn == root and message.role == "user":
                return message
    raise _left_behind(door, turn)


def _left_behind(door: Door, turn: TurnId) -> Conflict:
    return Conflict(f"a compaction of {door.id} left the input of {turn} behind", hint="Retry it instead.")
