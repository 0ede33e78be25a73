"""Events: telling a session's story in numbered steps, and reading it from any step on."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

from backstay.errors import NotFound
from backstay.model.codec import FORMAT, decode_event, encode_event
from backstay.model.event import (
    START,
    UNSEEN,
    Cursor,
    Event,
    EventBody,
    EventPage,
    FeedEvent,
    FeedPage,
    SessionDeleted,
    TurnEnded,
    TurnFolded,
    TurnRecorded,
    TurnStarted,
)
from backstay.model.ids import SessionId, TurnId, WindowId
from backstay.model.message import Message
from backstay.store.door import Door
from backstay.store.engine import Row, Transaction
from backstay.store.verbs import messages
from backstay.store.verbs.windows import Stretch

# What a fold replaces: the steps whose content is in the turn's messages.
FOLDED = frozenset({"text_delta", "thought_delta", "tool_called", "tool_returned", "custom_reported", "steering_taken"})


class Said(NamedTuple):
    """The messages an event speaks of, where they were said."""

    source: WindowId
    low: int
    high: int


def tell(tx: Transaction, door: Door, body: EventBody, turn: TurnId | None = None, said: Said | None = None) -> None:
    """Add the next event to the session's story."""
    door.last_event += 1
    number = door.last_event
    add(tx, door.id, body, number=number, last=number, fence=door.fence, turn=turn, said=said, at=tx.now)


def add(
    tx: Transaction,
    session: SessionId,
    body: EventBody,
    *,
    number: int,
    last: int,
    fence: int,
    turn: TurnId | None,
    said: Said | None,
    at: int,
) -> None:
    """Write down one event; its number is the caller's to know."""
    source, low, high = said or (None, None, None)
    tx.run(
        "add_event",
        session=session,
        number=number,
        last=last,
        fence=fence,
        turn=turn,
        kind=body.__struct_config__.tag,
        format=FORMAT,
        body=encode_event(body),
        source=source,
        low=low,
        high=high,
        now=at,
    )


def bury(tx: Transaction, session: SessionId, number: int, fence: int) -> None:
    """The last event of a deleted session, for those who still follow it."""
    add(tx, session, SessionDeleted(), number=number, last=number, fence=fence, turn=None, said=None, at=tx.now)


def of_turn(tx: Transaction, session: SessionId, turn: TurnId, first: int) -> list[EventBody]:
    """A turn's own events since it started."""
    rows = tx.all("events_of_turn", session=session, turn=turn, first=first)
    return [decode_event(f"event {number} of {session}", version, body) for number, version, body in rows]


def after(tx: Transaction, door: Door, cursor: Cursor, limit: int) -> EventPage:
    """The events that follow the cursor, and whether the reader must forget anything it saw before."""
    session, last = door.id, door.last_event
    gap: Literal["snapshot", "resync"] | None = None
    number = cursor.number
    # Of a deleted session only the tombstone is left, and whoever followed it is told just that.
    if cursor.number and door.state != "deleted":
        holding = tx.one("event_holding", session=session, number=cursor.number) if cursor.number <= last else None
        if holding is None or cursor.fence not in (UNSEEN, holding[2]):
            gap, number = "resync", 0
        elif holding[1] > cursor.number:
            gap, number = "snapshot", holding[0] - 1
    rows = tx.all("events_after", session=session, number=number, limit=limit + 1)
    found = tuple(_event(tx, session, row) for row in rows[:limit])
    following = found[-1].cursor if found else (cursor if gap is None else START)
    return EventPage(events=found, gap=gap, next=following, more=len(rows) > limit)


def follow(tx: Transaction, session: SessionId, owner: str, cursor: Cursor, limit: int) -> tuple[Door, EventPage]:
    """The session's door and its events after the cursor; a deleted session's story ends with its tombstone."""
    row = tx.one("door_of_story", session=session, owner=owner)
    if row is None:
        raise NotFound(f"no session {session} of {owner!r}")
    door = Door(*row)
    return door, after(tx, door, cursor, limit)


def feed(tx: Transaction, owner: str, position: int | None, limit: int) -> FeedPage:
    """What was written to any of the owner's sessions after a position; from now on without one."""
    if position is None:
        row = tx.one("end_of_feed")
        return FeedPage(events=(), next=row[0] if row else 0, more=False)
    rows = tx.all("feed_after", owner=owner, position=position, limit=limit + 1)
    found = tuple(FeedEvent(position=row[0], event=_event(tx, row[1], row[2:])) for row in rows[:limit])
    return FeedPage(events=found, next=found[-1].position if found else position, more=len(rows) > limit)


def fold(tx: Transaction, turn: TurnId, session: SessionId, first: int) -> int:
    """Replace an ended turn's events, or else each run of its deltas, by one row; how many rows went."""
    rows = [_Told(*row) for row in tx.all("events_to_fold", session=session, turn=turn, first=first)]
    whole = _whole_turn(session, rows)
    gone = 0
    if whole is not None:
        _replace(tx, session, turn, rows, whole[0], said=whole[1])
        gone = len(rows) - 1
    elif rows and rows[-1].kind == "turn_ended" and rows[-1].said is not None:
        runs = _runs(rows)
        for run in runs:
            body = TurnFolded(run[0].number, run[-1].last)
            _replace(tx, session, turn, run, body, said=rows[-1].said if run is runs[-1] else None)
        gone = sum(len(run) - 1 for run in runs)
    tx.run("mark_folded", turn=turn)
    return gone


class _Told(NamedTuple):
    """An event of a turn that is about to be folded."""

    number: int
    last: int
    fence: int
    kind: str
    format: int
    body: str
    source: WindowId | None
    low: int | None
    high: int | None
    at: int

    @property
    def said(self) -> Said | None:
        if self.source is None or self.low is None or self.high is None:
            return None
        return Said(self.source, self.low, self.high)


def _whole_turn(session: SessionId, rows: Sequence[_Told]) -> tuple[TurnFolded, Said] | None:
    """The one fold that can stand for all of these events; None if something else was told between them."""
    started, ended = rows[0], rows[-1]
    together = all(one.last + 1 == other.number and one.fence == other.fence for one, other in pairwise(rows))
    if not together or started.kind != "turn_started" or ended.kind != "turn_ended":
        return None
    said = _joined(started.said, ended.said)
    start = decode_event(f"event {started.number} of {session}", started.format, started.body)
    end = decode_event(f"event {ended.number} of {session}", ended.format, ended.body)
    if said is None or not isinstance(start, TurnStarted) or not isinstance(end, TurnEnded):
        return None
    return TurnFolded(started.number, ended.last, start.agent, end.outcome, end.may_have_run), said


def _joined(one: Said | None, other: Said | None) -> Said | None:
    """The input and the answer as one stretch, if nothing lies between them."""
    if one is None or other is None:
        return one
    return Said(one.source, one.low, other.high) if (one.source, one.high) == (other.source, other.low) else None


def _replace(
    tx: Transaction, session: SessionId, turn: TurnId, rows: Sequence[_Told], body: TurnFolded, *, said: Said | None
) -> None:
    first, last = rows[0], rows[-1]
    tx.run("drop_events", session=session, first=first.number, last=last.last)
    add(
        tx,
        session,
        body,
        number=first.number,
        last=last.last,
        fence=last.fence,
        turn=turn,
        said=said,
        at=last.at,
    )


def _runs(rows: Sequence[_Told]) -> list[list[_Told]]:
    """Deltas that follow each other without another event between them, under one fence."""
    runs: list[list[_Told]] = []
    for row in rows:
        if row.kind not in FOLDED:
            continue
        if runs and runs[-1][-1].last + 1 == row.number and runs[-1][-1].fence == row.fence:
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def _event(tx: Transaction, session: SessionId, row: Row) -> Event:
    number, last, fence, at, turn, version, body, source, low, high = row
    decoded = decode_event(f"event {number} of {session}", version, body)
    if source is not None:
        decoded = _with_messages(tx, decoded, Stretch(low, source, low, high))
    return Event(session=session, number=number, last=last, fence=fence, at=at, turn=turn, body=decoded)


def _with_messages(tx: Transaction, body: EventBody, stretch: Stretch) -> EventBody:
    """The event with the messages it speaks of, which are stored once, in their window."""
    if not isinstance(body, TurnStarted | TurnRecorded | TurnFolded):
        return body
    found: tuple[Message, ...] = tuple(messages.read(tx, stretch))
    if isinstance(body, TurnStarted):
        return msgspec.structs.replace(body, message=found[0] if found else None)
    return msgspec.structs.replace(body, messages=found)
