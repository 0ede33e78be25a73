"""Recovery of a lost tail: text that the database lost in a crash, and that the open turn of its holder still has.

A checkpoint of text alone is committed without a sync. Its text stays in the open turn until a later write of the
holder is synced, which makes everything before it durable. Every write of a holder calls `restore` first.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from backstay.model.codec import check_body
from backstay.model.content import Body
from backstay.model.event import (
    CustomReported,
    EventBody,
    SteeringTaken,
    TailLost,
    TextDelta,
    ThoughtDelta,
    ToolCalled,
    ToolReturned,
    UsageReported,
    event_of,
)
from backstay.model.history.unsynced import SYNCED
from backstay.model.turn import OpenTurn, Steering
from backstay.store.engine import Transaction
from backstay.store.session_row import LockedRow, SessionRow
from backstay.store.verbs.turns import event_log

# The events of a holder's bodies. Other events of its turn, such as an approval, may come from other writers.
_HOLDER_EVENTS = (TextDelta, ThoughtDelta, ToolCalled, ToolReturned, UsageReported, CustomReported)


def restore(tx: Transaction, session_row: LockedRow, turn: OpenTurn) -> OpenTurn:
    """Store lost text of this holder again, and return the open turn that fits the stored events.

    The fence grows, and an event records the loss. So readers that saw the lost events, or others under their numbers,
    read again. If the database lost more than the holder has, text is missing; the event records that as well.
    """
    if session_row.held_event >= turn.event:
        return turn
    # This must be synced: after another crash the same fence would be given to other events.
    tx.require_sync()
    lost = turn.unsynced.since(session_row.held_event)
    session_row.fence += 1
    # Events that others wrote since the crash have numbers of lost events.
    event_log.fence_off(tx, session_row, session_row.held_event)
    event_log.append_event(
        tx, session_row, TailLost(rewritten=bool(lost) and lost[0][0] == session_row.held_event), turn.id
    )
    for _, words in lost:
        for body in words:
            event_log.append_event(tx, session_row, event_of(check_body(body, tx.limits)), turn.id)
    session_row.held_event = session_row.last_event
    return replace(turn, fence=session_row.fence, event=session_row.held_event, unsynced=SYNCED)


class Repeated(NamedTuple):
    """The part of a write that an earlier attempt stored, whose answer was lost."""

    rest: Sequence[Body]
    keys: dict[str, str]
    steering: tuple[Steering, ...]


def repeated(tx: Transaction, session_row: SessionRow, turn: OpenTurn, bodies: Sequence[Body]) -> Repeated | None:
    """Compare a write with the events that the store has beyond the open turn. None if they are not of this write."""
    if session_row.held_event <= turn.event:
        return None
    events = event_log.of_turn(tx, session_row.id, turn.id, turn.event + 1)
    stored = [event for event in events if isinstance(event, _HOLDER_EVENTS)]
    same = all(_is_event_of(tx, body, event) for body, event in zip(bodies, stored, strict=False))
    if len(stored) > len(bodies) or not same:
        return None
    return Repeated(
        rest=bodies[len(stored) :],
        keys={event.call.id: event.key for event in stored if isinstance(event, ToolCalled)},
        steering=tuple(Steering(turn=one.steer, parts=one.parts) for one in events if isinstance(one, SteeringTaken)),
    )


def _is_event_of(tx: Transaction, body: Body, event: EventBody) -> bool:
    return event_of(check_body(body, tx.limits), event.key if isinstance(event, ToolCalled) else "") == event
