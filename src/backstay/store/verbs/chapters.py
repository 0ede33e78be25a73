"""Chapters: what a reader needs to show a session and to follow it from there, read at one moment."""

from collections.abc import Iterable, Sequence

import msgspec

from backstay.errors import InvalidPayload, NotFound
from backstay.model.chapter import Chapter, ChapterQuery, Glance
from backstay.model.content import Part, ToolCall
from backstay.model.event import EventBody
from backstay.model.ids import MessageId, SessionId, TurnId
from backstay.model.message import Message, NewMessage
from backstay.model.story import Story
from backstay.model.turn import Call, Turn
from backstay.store.door import Door, find
from backstay.store.engine import Transaction
from backstay.store.verbs import events, marks, reading, running, windows
from backstay.store.verbs.turns import TurnRow, call_value


def chapter(tx: Transaction, session: SessionId, owner: str, query: ChapterQuery) -> tuple[Door, Chapter]:
    """The stretch that is asked for, and the door at the same moment."""
    door = find(tx, session, owner)
    query = query if query.around is None else _around(tx, door, query.around, query.last)
    page = reading.messages_page(tx, session, owner, query.window, before=query.before, after=None, last=query.last)
    running_row = _row(tx, door.running, owner)
    story = () if running_row is None else events.of_turn(tx, door.id, running_row.id, running_row.first_event or 0)
    said, unheard = _so_far(story)
    turns = _turns(tx, owner, page.messages, running_row, story)
    roots = windows.get(tx, page.window)
    return door, Chapter(
        session=door.value(tx.now),
        window=page.window,
        length=page.length,
        messages=page.messages,
        turns=turns,
        calls=_calls(tx, page.messages, running_row),
        waiting=reading.waiting(tx, session, owner),
        said=tuple(said),
        unheard=tuple(unheard),
        behind=roots.behind,
        behind_until=roots.behind_until,
    )


def glances(tx: Transaction, sessions: Iterable[SessionId], owner: str) -> tuple[Glance, ...]:
    """What a list tells of each of these sessions that the owner has."""
    found = (_glance(tx, session, owner) for session in sessions)
    return tuple(glance for glance in found if glance is not None)


def _glance(tx: Transaction, session: SessionId, owner: str) -> Glance | None:
    row = tx.one("glance", session=session, owner=owner)
    if row is None:
        return None
    return Glance(session=session, marks=marks.get(tx, session, owner), asks=bool(row[0]), outcome=row[1])


def _around(tx: Transaction, door: Door, message: MessageId, last: int) -> ChapterQuery:
    """The page in whose middle a message stands: in the session's window, or in one that a summary stands for."""
    spot = windows.locate(tx, door.window, message)
    if spot is None:
        raise NotFound(f"no message {message} in {door.id}")
    if last < 1:
        raise InvalidPayload("a page around a message has at least that message", hint="Ask for last=1 or more.")
    return ChapterQuery(window=spot.window, before=spot.position + 1 + last // 2, last=last)


def _so_far(events: Iterable[EventBody]) -> tuple[list[NewMessage], list[tuple[Part, ...]]]:
    """What the running turn has said, and what was said to it and has no place yet."""
    story = Story()
    for event in events:
        story.add(event)
    return story.pause()


def _turns(
    tx: Transaction,
    owner: str,
    page: Sequence[Message],
    running_row: TurnRow | None,
    story: Sequence[EventBody],
) -> tuple[Turn, ...]:
    """The turns of these messages as they are, oldest first; a running one with what it has used so far.

    What a fork shares was said in turns of another session; if that is gone, so are they.
    """
    wanted = dict.fromkeys(message.turn for message in page if message.turn is not None)
    rows = [_row(tx, turn, owner) for turn in wanted]
    found = [row.value() for row in rows if row is not None and row.state == "ended"]
    if running_row is None:
        return tuple(found)
    return (*found, msgspec.structs.replace(running_row.value(), usage=running.usage_of(story)))


def _calls(tx: Transaction, page: Sequence[Message], running_row: TurnRow | None) -> tuple[Call, ...]:
    callers = dict.fromkeys(
        message.turn
        for message in page
        if message.turn is not None and any(isinstance(part, ToolCall) for part in message.parts)
    )
    if running_row is not None:
        callers[running_row.id] = None
    return tuple(call_value(row) for turn in callers for row in tx.all("calls", turn=turn))


def _row(tx: Transaction, turn: TurnId | None, owner: str) -> TurnRow | None:
    row = None if turn is None else tx.one("turn", turn=turn, owner=owner)
    return None if row is None else TurnRow(*row)
