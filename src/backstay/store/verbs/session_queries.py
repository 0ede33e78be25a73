"""Queries: sessions, messages, turns and windows. They change nothing."""

from collections.abc import Collection
from itertools import takewhile
from typing import NamedTuple

from msgspec.structs import asdict

from backstay.errors import InvalidPayload, NotFound, NothingToDo
from backstay.model.addresses.address import Address
from backstay.model.event import Cursor
from backstay.model.ids import MessageId, SessionId, TurnId, WindowId
from backstay.model.message import Message, MessagePage
from backstay.model.operations.store_info import Load
from backstay.model.session import Resolved, SessionCursor, SessionFilter, Ttl
from backstay.model.turn import COMPACTOR, ToolCallRecord, TurnInfo
from backstay.model.window import Window
from backstay.store.engine import Transaction
from backstay.store.rows import Rows, value, values
from backstay.store.session_row import SessionRow, find, note_holder
from backstay.store.verbs.history import window_segments
from backstay.store.verbs.history.window_segments import END, LINEAGE, WINDOW, Layout
from backstay.store.verbs.turns import messages
from backstay.store.verbs.turns.turn_row import CALLS, LAST_OF_ROOT, LEDGER, WAITING_TURNS, TurnRow
from backstay.store.verbs.turns.turn_row import find as find_turn

# A turn that crashes its process is not resumed forever.
RESUMPTIONS = 10
# Greater than every session id, so that a list without a cursor starts at its very top.
_TOP = SessionId("~")
_NEWEST_FIRST = SessionCursor(active_at=END, id=_TOP)
_ANY = SessionFilter()


class InterruptedTurn(NamedTuple):
    """An interrupted turn and its owner."""

    turn: TurnId
    owner: str


class _AddressedRow(SessionRow):
    """The row of a session behind an address, with the generation and the spelling of the address."""

    generation: int
    spelling: str


_AT = Rows("session_at", _AddressedRow)
_NEWEST = Rows("newest_sessions", SessionRow)
_LIST = Rows("list_sessions", SessionRow)
_LIST_OF_AGENT = Rows("list_sessions_of_agent", SessionRow)
_LIST_OF_PLACE = Rows("list_sessions_of_place", SessionRow)
_SESSIONS_BETWEEN = Rows("sessions_between", SessionRow)
_SESSIONS_ENDING = Rows("sessions_ending", SessionRow)
_RUNNING_SESSIONS = Rows("running_sessions", SessionRow)
_HEAD = Rows("head", Cursor)
_INTERRUPTED = Rows("interrupted_turns", InterruptedTurn)
_DECIDED = Rows("decided_turns", InterruptedTurn)
_LOAD = Rows("load", Load)
_WINDOW_OF_SESSION = Rows("window_of_session", Window)


def sessions(
    tx: Transaction, owner: str, filter: SessionFilter, after: SessionCursor | None, limit: int
) -> tuple[list[SessionRow], SessionCursor | None]:
    """The next rows of the list, newest first, and the cursor of the rows after them."""
    start = after or _NEWEST_FIRST
    if filter == _ANY:
        rows = _NEWEST.all(tx, owner=owner, active_at=start.active_at, id=start.id, limit=limit + 1)
    else:
        rows = _list_for(filter).all(
            tx, owner=owner, active_at=start.active_at, id=start.id, now=tx.now, limit=limit + 1, **asdict(filter)
        )
    session_rows = [note_holder(tx, row) for row in rows[:limit]]
    more = SessionCursor(active_at=session_rows[-1].active_at, id=session_rows[-1].id) if len(rows) > limit else None
    return session_rows, more


def _list_for(filter: SessionFilter) -> Rows[SessionRow]:
    """The statement that reads the fewest sessions for this filter."""
    if filter.agent is not None:
        return _LIST_OF_AGENT
    return _LIST if filter.place is None else _LIST_OF_PLACE


def beginning_with(tx: Transaction, prefix: str, owner: str, limit: int) -> list[SessionRow]:
    """The sessions whose ids begin with a prefix, the older first."""
    rows = _SESSIONS_BETWEEN.all(tx, owner=owner, low=prefix, high=prefix + _TOP, limit=limit)
    return [note_holder(tx, row) for row in rows]


def ending_with(tx: Transaction, letters: str, owner: str, limit: int) -> list[SessionRow]:
    """The sessions whose ids end with these letters, the older first."""
    rows = _SESSIONS_ENDING.all(tx, owner=owner, pattern=f"%{letters}", limit=limit)
    return [note_holder(tx, row) for row in rows]


def at(tx: Transaction, address: Address, owner: str) -> SessionRow:
    """The session behind an address, open or not. Raises `NotFound`."""
    found = _AT.one(tx, owner=owner, key=bytes.fromhex(address.key))
    if found is None:
        raise NotFound(
            f"{address} leads to no session of {owner!r}", hint="Send a first message to the address to create one."
        )
    return note_holder(tx, found)


def resolved(tx: Transaction, address: Address, owner: str, ttl: Ttl | None) -> Resolved | None:
    """The session behind an address, if a lookup of it has nothing to store; otherwise None."""
    found = _AT.one(tx, owner=owner, key=bytes.fromhex(address.key))
    if found is None or ttl is not None or found.spelling != address.spelling or found.mark_due(tx.now):
        return None
    session = note_holder(tx, found).value(tx.now)
    return Resolved(session=session, how="resumed", generation=found.generation) if session.state == "open" else None


def revision(tx: Transaction, session: SessionId, owner: str) -> int:
    """The revision of a session. Raises `NotFound`."""
    number: int | None = value(tx, "revision", session=session, owner=owner)
    if number is None:
        raise NotFound(f"no session {session} of {owner!r}")
    return number


def heads(tx: Transaction, watched: Collection[tuple[SessionId, str]]) -> dict[SessionId, Cursor]:
    """The cursor after the last event of each of these sessions, deleted or not."""
    found = ((session, _HEAD.one(tx, session=session, owner=owner)) for session, owner in watched)
    return {session: cursor for session, cursor in found if cursor is not None}


def messages_page(
    tx: Transaction,
    session: SessionId,
    owner: str,
    window: WindowId | None,
    *,
    before: int | None,
    after: int | None,
    last: int | None,
) -> MessagePage:
    """Messages of a window: all of them, or those around a position, or the last few."""
    layout, length = _layout_to_read(tx, session, owner, window)
    low = 0 if after is None else after + 1
    high = length if before is None else min(before, length)
    if low < 0 or high < 0 or (last is not None and last < 0):
        raise InvalidPayload("before, after and last cannot be negative")
    if last is not None:
        low = max(low, high - last)
    return MessagePage(window=layout.window, length=length, messages=tuple(_read(tx, layout, low, high)))


def _layout_to_read(tx: Transaction, session: SessionId, owner: str, window: WindowId | None) -> tuple[Layout, int]:
    """The parts of a window of the session, by default its current one, and the number of messages in it."""
    current = window_segments.current_window(tx, session, owner)
    if current is None:
        raise NotFound(f"no session {session} of {owner!r}")
    if current.holder is None and window in (None, current.layout.window):
        return current.layout, current.length
    session_row = find(tx, session, owner)  # Records the holder, which may be dead.
    if window in (None, session_row.window):
        return current.layout, current.length
    here = _window_of(tx, session_row, WindowId(window or "")).id
    return window_segments.layout_of(tx, here), window_segments.length(tx, here)


def _read(tx: Transaction, layout: Layout, low: int, high: int) -> list[Message]:
    found: list[Message] = []
    for segment in window_segments.segments(tx, layout.window, high, layout):
        found += messages.read(tx, segment, low=low, high=high)
    return found


def message_position(tx: Transaction, session: SessionId, owner: str, message: MessageId) -> int:
    """The position of a message in the window of the session. Raises `NotFound`."""
    session_row = find(tx, session, owner)
    found = window_segments.locate(tx, session_row.window, message)
    if found is None or found.window != session_row.window or found.position >= session_row.length:
        raise NotFound(f"{message} is not part of {session}", hint="It may have been undone, compacted or left out.")
    return found.position


def rest_of_turn(tx: Transaction, message: MessageId, owner: str, limit: int) -> tuple[Message, ...]:
    """A message of the owner, then those that its turn added after it. Raises `NotFound`."""
    origin = window_segments.origin_of(tx, message)
    if origin is None or not _is_owned(tx, origin.window, owner):
        raise NotFound(f"no message {message} of {owner!r}", hint="Its session may have been deleted.")
    found = _read(tx, window_segments.layout_of(tx, origin.window), origin.position, origin.position + limit)
    return (found[0], *takewhile(lambda one: origin.turn is not None and one.turn == origin.turn, found[1:]))


def _is_owned(tx: Transaction, window: WindowId, owner: str) -> bool:
    try:
        return bool(find(tx, window_segments.get(tx, window).session, owner))
    except NotFound:
        return False


def lineage(tx: Transaction, session: SessionId, owner: str) -> tuple[Window, ...]:
    """All windows of a session, oldest first."""
    find(tx, session, owner)
    return tuple(LINEAGE.all(tx, session=session))


def turn(tx: Transaction, turn: TurnId, owner: str) -> TurnInfo:
    """A turn of the owner. Raises `NotFound`."""
    return show(tx, find_turn(tx, turn, owner), owner)


def show(tx: Transaction, row: TurnRow, owner: str) -> TurnInfo:
    """The turn as a caller sees it. If it has not ended, its session row is read too: the holder may be dead."""
    if row.state != "ended":
        find(tx, row.session, owner)
    return row.value()


def waiting(tx: Transaction, session: SessionId, owner: str) -> tuple[TurnInfo, ...]:
    """The waiting turns of a session, in the order of their start."""
    find(tx, session, owner)
    return tuple(row.value() for row in WAITING_TURNS.all(tx, session=session))


def calls(tx: Transaction, turn: TurnId, owner: str) -> tuple[ToolCallRecord, ...]:
    """The tool calls of a turn, with their effects as far as they are known."""
    show(tx, find_turn(tx, turn, owner), owner)
    return tuple(CALLS.all(tx, turn=turn))


def ledger(tx: Transaction, root: TurnId, owner: str) -> tuple[ToolCallRecord, ...]:
    """The tool calls of a root turn and of the turns that continued it, in order."""
    show(tx, find_turn(tx, root, owner), owner)
    lines = tuple(LEDGER.all(tx, root=root))
    for turn in {line.turn for line in lines if line.effect == "called"}:
        show(tx, find_turn(tx, turn, owner), owner)
    return lines


def interrupted(tx: Transaction, agents: Collection[str], moment: int) -> list[InterruptedTurn]:
    """Turns interrupted since this moment that one of these agents can resume."""
    return [
        turn
        for agent in agents
        if agent != COMPACTOR
        for turn in _INTERRUPTED.all(tx, agent=agent, moment=moment, most=RESUMPTIONS, limit=1_000)
    ]


def decided(tx: Transaction, agents: Collection[str]) -> list[InterruptedTurn]:
    """Interrupted turns that continue with one of these agents: a person has decided about one of their calls."""
    return [
        turn
        for agent in agents
        if agent != COMPACTOR
        for turn in _DECIDED.all(tx, agent=agent, most=RESUMPTIONS, limit=1_000)
    ]


def last_turn(tx: Transaction, session: SessionId, owner: str) -> TurnInfo:
    """The turn at the end of the history: the newest of those that answer the last input. Raises `NothingToDo`."""
    session_row = find(tx, session, owner)
    found = window_segments.last_turn(tx, session_row.window, session_row.length)
    if found is None:
        raise NothingToDo(f"{session} has no turn yet", hint="Send a message first.")
    last = LAST_OF_ROOT.one(tx, session=session, root=find_turn(tx, found.turn, owner).root)
    return show(tx, find_turn(tx, found.turn if last is None else last.turn, owner), owner)


def addresses(tx: Transaction, session: SessionId, owner: str) -> tuple[str, ...]:
    """The spellings of the addresses that lead to a session."""
    find(tx, session, owner)
    return tuple(values(tx, "addresses_of", session=session, owner=owner))


def running_rows(tx: Transaction, after: str, limit: int) -> list[SessionRow]:
    """Sessions with a running turn, for the reaper."""
    return _RUNNING_SESSIONS.all(tx, after=after, limit=limit)


def load(tx: Transaction) -> Load:
    """The number of running and waiting turns of all owners."""
    return _LOAD.one(tx) or Load()


def count(tx: Transaction) -> int:
    """The number of sessions."""
    return value(tx, "count_sessions") or 0


def _window_of(tx: Transaction, session_row: SessionRow, window: WindowId) -> Window:
    found = _WINDOW_OF_SESSION.one(tx, window=window, session=session_row.id)
    if found is None and window_segments.is_summarised_by(tx, session_row.window, window):
        found = WINDOW.one(tx, window=window)  # The summary of a fork may replace a window of another session.
    if found is None:
        raise NotFound(f"{session_row.id} has no window {window}")
    return found
