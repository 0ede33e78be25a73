"""The snapshot of a session: everything that a reader shows before it follows the events, read at one moment."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from backstay.errors import InvalidPayload, NotFound
from backstay.model.content import Part, ToolCall
from backstay.model.event import EventBody
from backstay.model.history.snapshot import SessionBadge, SessionSnapshot, SnapshotQuery
from backstay.model.history.turn_messages import TurnMessages
from backstay.model.ids import MessageId, SessionId, TurnId
from backstay.model.message import Message, NewMessage
from backstay.model.turn import ToolCallRecord, TurnInfo
from backstay.store.engine import Transaction
from backstay.store.rows import Rows
from backstay.store.session_row import SessionRow, find
from backstay.store.verbs import reader_marks, session_queries
from backstay.store.verbs.history import window_segments
from backstay.store.verbs.turns import event_log, lifecycle
from backstay.store.verbs.turns.turn_row import CALLS, TURN, TurnRow


class _BadgeRow(NamedTuple):
    """Whether a call of the running turn needs approval, and how the last turn ended."""

    asks: int
    outcome: str | None


_BADGE = Rows("badge", _BadgeRow)


def snapshot(tx: Transaction, session: SessionId, owner: str, query: SnapshotQuery) -> SessionSnapshot:
    """A page of messages, with the session at the same moment."""
    session_row = find(tx, session, owner)
    query = query if query.around is None else _around(tx, session_row, query.around, query.last)
    page = session_queries.messages_page(
        tx, session, owner, query.window, before=query.before, after=None, last=query.last
    )
    running_row = _row(tx, session_row.running, owner)
    events = (
        ()
        if running_row is None
        else event_log.of_turn(tx, session_row.id, running_row.id, running_row.first_event or 0)
    )
    output, pending_steering = _running_output(events)
    turns = _turns(tx, owner, page.messages, running_row, events)
    window = window_segments.get(tx, page.window)
    return SessionSnapshot(
        session=session_row.value(tx.now),
        window=page.window,
        length=page.length,
        messages=page.messages,
        turns=turns,
        calls=_calls(tx, page.messages, running_row),
        waiting=session_queries.waiting(tx, session, owner),
        output=tuple(output),
        pending_steering=tuple(pending_steering),
        summarises=window.summarises,
        summarises_until=window.summarises_until,
    )


def badges(tx: Transaction, sessions: Iterable[SessionId], owner: str) -> tuple[SessionBadge, ...]:
    """The badges of those of these sessions that the owner has."""
    found = (_badge(tx, session, owner) for session in sessions)
    return tuple(badge for badge in found if badge is not None)


def _badge(tx: Transaction, session: SessionId, owner: str) -> SessionBadge | None:
    badge = _BADGE.one(tx, session=session, owner=owner)
    if badge is None:
        return None
    marks = reader_marks.get(tx, session, owner)
    return SessionBadge(session=session, marks=marks, asks=bool(badge.asks), outcome=badge.outcome)


def _around(tx: Transaction, session_row: SessionRow, message: MessageId, last: int) -> SnapshotQuery:
    """The page around a message: in the window of the session, or in a window that a summary replaces."""
    location = window_segments.locate(tx, session_row.window, message)
    if location is None:
        raise NotFound(f"no message {message} in {session_row.id}")
    if last < 1:
        raise InvalidPayload("a page around a message contains at least that message", hint="Ask for last=1 or more.")
    return SnapshotQuery(window=location.window, before=location.position + 1 + last // 2, last=last)


def _running_output(events: Iterable[EventBody]) -> tuple[list[NewMessage], list[tuple[Part, ...]]]:
    """The output of the running turn, and its steering inputs that are not part of the output yet."""
    fold = TurnMessages()
    for event in events:
        fold.add(event)
    return fold.pause()


def _turns(
    tx: Transaction,
    owner: str,
    page: Sequence[Message],
    running_row: TurnRow | None,
    events: Sequence[EventBody],
) -> tuple[TurnInfo, ...]:
    """The turns of these messages, oldest first; a running turn with its usage so far.

    The messages that a fork shares are of turns of another session. If that was deleted, so were they.
    """
    wanted = dict.fromkeys(message.turn for message in page if message.turn is not None)
    rows = [_row(tx, turn, owner) for turn in wanted]
    found = [row.value() for row in rows if row is not None and row.state == "ended"]
    if running_row is None:
        return tuple(found)
    return (*found, msgspec.structs.replace(running_row.value(), usage=lifecycle.usage_of(events)))


def _calls(tx: Transaction, page: Sequence[Message], running_row: TurnRow | None) -> tuple[ToolCallRecord, ...]:
    callers = dict.fromkeys(
        message.turn
        for message in page
        if message.turn is not None and any(isinstance(part, ToolCall) for part in message.parts)
    )
    if running_row is not None:
        callers[running_row.id] = None
    return tuple(call for turn in callers for call in CALLS.all(tx, turn=turn))


def _row(tx: Transaction, turn: TurnId | None, owner: str) -> TurnRow | None:
    return None if turn is None else TURN.one(tx, turn=turn, owner=owner)
