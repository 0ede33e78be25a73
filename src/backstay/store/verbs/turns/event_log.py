"""The event log of a session: numbered events, appended once and read from any number on."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

from backstay.errors import NotFound
from backstay.model.codec import FORMAT, decode_event, encode_event
from backstay.model.documents.document import ExportedEvent, Reference
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
from backstay.store.engine import Transaction
from backstay.store.rows import Rows, value
from backstay.store.session_row import LockedRow, SessionRow, note_holder
from backstay.store.verbs.history.window_segments import WindowSegment
from backstay.store.verbs.turns import messages

# The events that a fold replaces: their content is in the messages of the turn.
FOLDED = frozenset({"text_delta", "thought_delta", "tool_called", "tool_returned", "custom_reported", "steering_taken"})

# The events with text of a person. They stay for the life of the session, and count for the quota. The invariants and
# the migration `stored_text` name the same.
COUNTED = frozenset(
    {"turn_submitted", "turn_edited", "session_renamed", "session_tagged", "session_annotated", "address_pointed"}
)


class MessageRange(NamedTuple):
    """The messages of an event: positions low to high of the window where they were written."""

    source: WindowId
    low: int
    high: int


class _EventRow(msgspec.Struct, gc=False):
    """An event as readers need it."""

    number: int
    last: int
    fence: int
    at: int
    turn: TurnId | None
    format: int
    body: str
    source: WindowId | None
    low: int | None
    high: int | None

    @property
    def message_range(self) -> MessageRange | None:
        if self.source is None or self.low is None or self.high is None:
            return None
        return MessageRange(self.source, self.low, self.high)

    def decoded(self, session: SessionId) -> EventBody:
        return decode_event(f"event {self.number} of {session}", self.format, self.body)


class _FeedRow(_EventRow):
    """An event of any session of an owner, at its position in the feed."""

    position: int
    session: SessionId


class _StoredEvent(_EventRow):
    """An event with everything that is stored of it."""

    kind: str


class TurnEnding(NamedTuple):
    """The end of a turn: the last number of its event, the turn, the body, and the messages of the event."""

    last: int
    turn: TurnId | None
    body: EventBody
    messages: tuple[Message, ...]


class _BodyRow(msgspec.Struct, gc=False):
    """The number and the body of an event."""

    number: int
    format: int
    body: str


_AFTER = Rows("events_after", _EventRow)
_CONTAINING = Rows("event_containing", _EventRow)
_TO_EXPORT = Rows("events_to_export", _EventRow)
_FEED = Rows("feed_after", _FeedRow)
_NEXT_ENDING = Rows("next_ending", _EventRow)
_TO_FOLD = Rows("events_to_fold", _StoredEvent)
_TO_FENCE = Rows("events_to_fence", _StoredEvent)
_OF_TURN = Rows("events_of_turn", _BodyRow)
_OF_RUNNING_TURN = Rows("events_of_running_turn", _BodyRow)
_ROW_OR_TOMBSTONE = Rows("session_row_or_tombstone", SessionRow)


def append_event(
    tx: Transaction,
    session_row: LockedRow,
    body: EventBody,
    turn: TurnId | None = None,
    message_range: MessageRange | None = None,
) -> None:
    """Append the next event to the log of the session."""
    session_row.text_bytes += text_size(body)
    session_row.last_event += 1
    number = session_row.last_event
    add(
        tx,
        session_row.id,
        body,
        number=number,
        last=number,
        fence=session_row.fence,
        turn=turn,
        message_range=message_range,
        at=tx.now,
    )


def text_size(body: EventBody) -> int:
    """The number of bytes that an event counts for the quota of its owner."""
    return len(encode_event(body).encode()) if body.__struct_config__.tag in COUNTED else 0


def append_first(tx: Transaction, session_row: LockedRow, body: EventBody) -> None:
    """Append the first event of a new session, whose row was inserted with its number."""
    first, fence = session_row.last_event, session_row.fence
    add(tx, session_row.id, body, number=first, last=first, fence=fence, turn=None, message_range=None, at=tx.now)


def add(
    tx: Transaction,
    session: SessionId,
    body: EventBody,
    *,
    number: int,
    last: int,
    fence: int,
    turn: TurnId | None,
    message_range: MessageRange | None,
    at: int,
) -> None:
    """Store one event under a number that the caller has chosen."""
    source, low, high = message_range or (None, None, None)
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


def add_tombstone(tx: Transaction, session: SessionId, number: int, fence: int) -> None:
    """Append the tombstone, the last event of a deleted session, for its followers."""
    add(
        tx, session, SessionDeleted(), number=number, last=number, fence=fence, turn=None, message_range=None, at=tx.now
    )


def fence_off(tx: Transaction, session_row: LockedRow, number: int) -> None:
    """Put the events after a number under the current fence: readers that saw other events there read again."""
    rows = _TO_FENCE.all(tx, session=session_row.id, number=number)
    # Events are never updated: each is replaced by one with the same number. All in the holder's transaction: a crash
    # in between leaves the old events, and the next write of the holder fences them off again.
    tx.run("drop_events", session=session_row.id, first=number + 1, last=session_row.last_event)
    for row in rows:
        tx.run(
            "add_event",
            session=session_row.id,
            number=row.number,
            last=row.last,
            fence=session_row.fence,
            turn=row.turn,
            kind=row.kind,
            format=row.format,
            body=row.body,
            source=row.source,
            low=row.low,
            high=row.high,
            now=row.at,
        )


def of_turn(tx: Transaction, session: SessionId, turn: TurnId, first: int) -> list[EventBody]:
    """The events of a turn, from number `first` on."""
    return _bodies(session, _OF_TURN.all(tx, session=session, turn=turn, first=first))


def of_running_turn(tx: Transaction, session: SessionId, turn: TurnId) -> list[EventBody]:
    """The events of a turn that has not ended."""
    return _bodies(session, _OF_RUNNING_TURN.all(tx, session=session, turn=turn))


def _bodies(session: SessionId, rows: Sequence[_BodyRow]) -> list[EventBody]:
    return [decode_event(f"event {row.number} of {session}", row.format, row.body) for row in rows]


def after(tx: Transaction, session_row: SessionRow, cursor: Cursor, limit: int) -> EventPage:
    """The events after the cursor, and whether the reader must discard events that it has seen."""
    session, last = session_row.id, session_row.last_event
    gap: Literal["snapshot", "resync"] | None = None
    number = cursor.number
    # A deleted session has only its tombstone left, which continues every cursor.
    if cursor.number and session_row.state != "deleted":
        found_at = _CONTAINING.one(tx, session=session, number=cursor.number) if cursor.number <= last else None
        if found_at is None or cursor.fence not in (UNSEEN, found_at.fence):
            gap, number = "resync", 0
        elif found_at.last > cursor.number:
            gap, number = "snapshot", found_at.number - 1
    rows = _AFTER.all(tx, session=session, number=number, limit=limit + 1)
    found = tuple(_event(tx, session, row) for row in rows[:limit])
    following = found[-1].cursor if found else (cursor if gap is None else START)
    return EventPage(events=found, gap=gap, next=following, more=len(rows) > limit)


def follow(tx: Transaction, session: SessionId, owner: str, cursor: Cursor, limit: int) -> EventPage:
    """The events of a session after the cursor. The log of a deleted session ends with its tombstone."""
    row = _ROW_OR_TOMBSTONE.one(tx, session=session, owner=owner)
    if row is None:
        raise NotFound(f"no session {session} of {owner!r}")
    return after(tx, note_holder(tx, row), cursor, limit)


def feed(tx: Transaction, owner: str, position: int | None, limit: int) -> FeedPage:
    """The events of all sessions of an owner after a position. Without a position, only the end of the feed."""
    if position is None:
        return FeedPage(events=(), next=value(tx, "end_of_feed", owner=owner, now=tx.now) or 0, more=False)
    rows = _FEED.all(tx, owner=owner, position=position, now=tx.now, limit=limit + 1)
    found = tuple(FeedEvent(position=row.position, event=_event(tx, row.session, row)) for row in rows[:limit])
    return FeedPage(events=found, next=found[-1].position if found else position, more=len(rows) > limit)


def next_ending(tx: Transaction, session: SessionId, number: int) -> TurnEnding | None:
    """The first end of a turn after an event, or None."""
    row = _NEXT_ENDING.one(tx, session=session, number=number)
    if row is None:
        return None
    found = row.message_range
    segment = None if found is None else WindowSegment(found.low, found.source, found.low, found.high)
    added = () if segment is None else tuple(messages.read(tx, segment))
    return TurnEnding(row.last, row.turn, row.decoded(session), added)


def fold(tx: Transaction, turn: TurnId, session: SessionId, first: int) -> int:
    """Replace the events of an ended turn, or each run of its deltas, by one row. Returns how many rows it removed."""
    rows = _TO_FOLD.all(tx, session=session, turn=turn, first=first)
    whole = _whole_turn(session, rows)
    removed = 0
    if whole is not None:
        _replace(tx, session, turn, rows, whole[0], message_range=whole[1])
        removed = len(rows) - 1
    elif rows and rows[-1].kind == "turn_ended" and rows[-1].message_range is not None:
        runs = _runs(rows)
        for run in runs:
            body = TurnFolded(run[0].number, run[-1].last)
            _replace(tx, session, turn, run, body, message_range=rows[-1].message_range if run is runs[-1] else None)
        removed = sum(len(run) - 1 for run in runs)
    tx.run("mark_folded", turn=turn)
    return removed


def _whole_turn(session: SessionId, rows: Sequence[_StoredEvent]) -> tuple[TurnFolded, MessageRange] | None:
    """One fold for all of these events; None if events of others, or of another fence, lie between them."""
    started, ended = rows[0], rows[-1]
    together = all(one.last + 1 == other.number and one.fence == other.fence for one, other in pairwise(rows))
    if not together or started.kind != "turn_started" or ended.kind != "turn_ended":
        return None
    message_range = _joined(started.message_range, ended.message_range)
    start, end = started.decoded(session), ended.decoded(session)
    if message_range is None or not isinstance(start, TurnStarted) or not isinstance(end, TurnEnded):
        return None
    return TurnFolded(started.number, ended.last, start.agent, end.outcome, end.may_have_run), message_range


def _joined(one: MessageRange | None, other: MessageRange | None) -> MessageRange | None:
    """The messages of the input and of the answer as one range, if nothing lies between them."""
    if one is None or other is None:
        return one
    return (
        MessageRange(one.source, one.low, other.high) if (one.source, one.high) == (other.source, other.low) else None
    )


def _replace(
    tx: Transaction,
    session: SessionId,
    turn: TurnId,
    rows: Sequence[_StoredEvent],
    body: TurnFolded,
    *,
    message_range: MessageRange | None,
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
        message_range=message_range,
        at=last.at,
    )


def _runs(rows: Sequence[_StoredEvent]) -> list[list[_StoredEvent]]:
    """Runs of deltas: consecutive numbers under one fence."""
    runs: list[list[_StoredEvent]] = []
    for row in rows:
        if row.kind not in FOLDED:
            continue
        if runs and runs[-1][-1].last + 1 == row.number and runs[-1][-1].fence == row.fence:
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def to_export(tx: Transaction, session: SessionId, number: int, last: int, limit: int) -> list[ExportedEvent]:
    """The events after a number, up to another one, with their messages as references."""
    return [
        ExportedEvent(
            number=row.number,
            last=row.last,
            fence=row.fence,
            at=row.at,
            turn=row.turn,
            body=row.decoded(session),
            messages=_reference(row.message_range),
        )
        for row in _TO_EXPORT.all(tx, session=session, number=number, last=last, limit=limit)
    ]


def _reference(found: MessageRange | None) -> Reference | None:
    return None if found is None else Reference(window=found.source, low=found.low, high=found.high)


def _event(tx: Transaction, session: SessionId, row: _EventRow) -> Event:
    body, message_range = row.decoded(session), row.message_range
    if message_range is not None:
        body = _with_messages(
            tx, body, WindowSegment(message_range.low, message_range.source, message_range.low, message_range.high)
        )
    return Event(
        session=session, number=row.number, last=row.last, fence=row.fence, at=row.at, turn=row.turn, body=body
    )


def _with_messages(tx: Transaction, body: EventBody, segment: WindowSegment) -> EventBody:
    """Add the messages of an event to its body; they are stored once, in their window."""
    if not isinstance(body, TurnStarted | TurnRecorded | TurnFolded):
        return body
    found: tuple[Message, ...] = tuple(messages.read(tx, segment))
    if isinstance(body, TurnStarted):
        return msgspec.structs.replace(body, message=found[0] if found else None)
    return msgspec.structs.replace(body, messages=found)
