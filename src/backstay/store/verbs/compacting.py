"""Compacting: the turn in which a window is summarised, so that nobody speaks meanwhile."""

from backstay.errors import NothingToDo, StoryChanged
from backstay.model.ids import SessionId
from backstay.model.message import MessagePage
from backstay.model.turn import COMPACTOR, Compacting, OpenTurn
from backstay.store.door import Door, find, leave
from backstay.store.engine import Transaction
from backstay.store.verbs import messages, running
from backstay.store.verbs.submitting import Request, add, new_row
from backstay.store.verbs.turns import find_row


def compact(tx: Transaction, session: SessionId, owner: str, seen: MessagePage | None) -> Compacting:
    """Open a compaction in a session where nobody speaks and that reads as it was seen; or name the one that runs."""
    door = find(tx, session, owner)
    running.reap(tx, door)
    door.require_open(tx.now)
    if door.running is not None:
        row = find_row(tx, door.running, owner)
        if row.agent == COMPACTOR:
            return Compacting(turn=row.value())
    running.require_free(door)
    # Positions of a window stay the same for ever: equal length is equal content.
    if seen is not None and (seen.window, seen.length) != (door.window, door.length):
        raise StoryChanged(f"{session} does not read as it did when it was seen", hint="Read it again, then decide.")
    opened = begin(tx, door)
    leave(tx, door)
    return Compacting(turn=find_row(tx, opened.id, owner).value(), opened=opened)


def begin(tx: Transaction, door: Door) -> OpenTurn:
    """Open a compaction now. The caller writes the door."""
    if not door.length:
        raise NothingToDo(f"{door.id} has nothing to compact")
    last = messages.at(tx, door.window, door.length - 1)
    row = new_row(tx, door, tx.ids.turn(), COMPACTOR, "running")
    opened = running.open_compaction(tx, door, row.id, last)
    row.event = row.first_event = opened.event
    add(tx, row, Request(to=door.id, owner=door.owner), None)
    return opened
