"""Reading: sessions, their messages, their lineage, without ever changing anything."""

from collections.abc import Collection

from backstay.errors import InvalidPayload, NotFound
from backstay.model.about import Load
from backstay.model.address import Address
from backstay.model.ids import MessageId, SessionId, TurnId, WindowId
from backstay.model.message import Message, MessagePage
from backstay.model.session import SessionCursor, SessionFilter
from backstay.model.turn import COMPACTOR, Call, Turn
from backstay.model.window import Window
from backstay.store.door import Door, find
from backstay.store.engine import Transaction
from backstay.store.verbs import messages, windows
from backstay.store.verbs.turns import TurnRow, call_value
from backstay.store.verbs.turns import find as find_turn
from backstay.store.verbs.windows import END

# A turn that takes its process down with it is not gone on with for ever.
RESUMPTIONS = 10
# Greater than every session id, so that a list without a cursor starts at its very top.
_TOP = SessionId("~")


def sessions(
    tx: Transaction, owner: str, filter: SessionFilter, after: SessionCursor | None, limit: int
) -> tuple[list[Door], SessionCursor | None]:
    """The next doors of the list, newest first, and where it goes on."""
    start = after or SessionCursor(active_at=END, id=_TOP)
    rows = tx.all(
        _list_for(filter),
        owner=owner,
        active_at=start.active_at,
        id=start.id,
        state=filter.state,
        tag=filter.tag,
        family=filter.family,
        place=filter.place,
        agent=filter.agent,
        pinned=filter.pinned,
        archived=filter.archived,
        now=tx.now,
        limit=limit + 1,
    )
    doors = [Door(*row) for row in rows[:limit]]
    more = SessionCursor(active_at=doors[-1].active_at, id=doors[-1].id) if len(rows) > limit else None
    return doors, more


def _list_for(filter: SessionFilter) -> str:
    """The statement that reads no more sessions than it must, whatever else is asked for."""
    if filter.agent is not None:
        return "list_sessions_of_agent"
    return "list_sessions" if filter.place is None else "list_sessions_of_place"


def beginning_with(tx: Transaction, prefix: str, owner: str, limit: int) -> list[Door]:
    """The doors of sessions whose ids begin so, the older first."""
    rows = tx.all("sessions_between", owner=owner, low=prefix, high=prefix + _TOP, limit=limit)
    return [Door(*row) for row in rows]


def at(tx: Transaction, address: Address, owner: str) -> Door:
    """The door of the session that an address leads to, living or not."""
    row = tx.one("address", owner=owner, key=bytes.fromhex(address.key))
    if row is None:
        raise NotFound(f"{address} leads to no session of {owner!r}", hint="A first message sent to it makes one.")
    return find(tx, row[0], owner)


def revision(tx: Transaction, session: SessionId, owner: str) -> int:
    """The session's revision."""
    row = tx.one("revision", session=session, owner=owner)
    if row is None:
        raise NotFound(f"no session {session} of {owner!r}")
    number: int = row[0]
    return number


def heads(tx: Transaction, watched: Collection[tuple[SessionId, str]]) -> dict[SessionId, int]:
    """The last event number of each of these sessions, deleted or not."""
    rows = ((session, tx.one("head", session=session, owner=owner)) for session, owner in watched)
    return {session: row[0] for session, row in rows if row is not None}


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
    door = find(tx, session, owner)
    here = door.window if window is None else _window_of(tx, door, window).id
    length = door.length if here == door.window else windows.length(tx, here)
    low = 0 if after is None else after + 1
    high = length if before is None else min(before, length)
    if low < 0 or high < 0 or (last is not None and last < 0):
        raise InvalidPayload("before, after and last cannot be negative")
    if last is not None:
        low = max(low, high - last)
    return MessagePage(window=here, length=length, messages=tuple(_read(tx, here, low, high)))


def _read(tx: Transaction, window: WindowId, low: int, high: int) -> list[Message]:
    found: list[Message] = []
    for stretch in windows.stretches(tx, window, high):
        found += messages.read(tx, stretch, low=low, high=high)
    return found


def place(tx: Transaction, session: SessionId, owner: str, message: MessageId) -> int:
    """Where a message stands in the session's window."""
    door = find(tx, session, owner)
    found = windows.locate(tx, door.window, message)
    if found is None or found.window != door.window or found.position >= door.length:
        raise NotFound(f"{message} is not part of {session}", hint="It may have been undone, compacted or left out.")
    return found.position


def lineage(tx: Transaction, session: SessionId, owner: str) -> tuple[Window, ...]:
    """All windows of a session, oldest first."""
    find(tx, session, owner)
    return tuple(windows.value(row) for row in tx.all("lineage", session=session))


def turn(tx: Transaction, turn: TurnId, owner: str) -> Turn:
    """A turn."""
    return find_turn(tx, turn, owner).value()


def waiting(tx: Transaction, session: SessionId, owner: str) -> tuple[Turn, ...]:
    """What waits in a session, in the order it will run."""
    find(tx, session, owner)
    return tuple(TurnRow(*row).value() for row in tx.all("waiting_turns", session=session))


def calls(tx: Transaction, turn: TurnId, owner: str) -> tuple[Call, ...]:
    """A turn's tool calls and what is known of their effects."""
    find_turn(tx, turn, owner)
    return tuple(call_value(row) for row in tx.all("calls", turn=turn))


def ledger(tx: Transaction, root: TurnId, owner: str) -> tuple[Call, ...]:
    """The tool calls of a root turn and of those that went on for it, in order."""
    find_turn(tx, root, owner)
    return tuple(call_value(row) for row in tx.all("ledger", root=root))


def interrupted(tx: Transaction, agents: Collection[str], moment: int) -> list[tuple[TurnId, str]]:
    """Turns interrupted since this moment that one of these agents could go on with, and their owners."""
    rows = (
        row
        for agent in agents
        if agent != COMPACTOR
        for row in tx.all("interrupted_turns", agent=agent, moment=moment, most=RESUMPTIONS, limit=1_000)
    )
    return [(row[0], row[1]) for row in rows]


def addresses(tx: Transaction, session: SessionId, owner: str) -> tuple[str, ...]:
    """The spellings of the addresses that lead to a session."""
    find(tx, session, owner)
    return tuple(row[0] for row in tx.all("addresses_of", session=session, owner=owner))


def running_doors(tx: Transaction, after: str, limit: int) -> list[Door]:
    """Sessions with a running turn, for the reaper."""
    return [Door(*row) for row in tx.all("running_sessions", after=after, limit=limit)]


def load(tx: Transaction) -> Load:
    """How many turns run and wait, whoever's they are."""
    row = tx.one("load")
    return Load() if row is None else Load(running=row[0], waiting=row[1])


def count(tx: Transaction) -> int:
    """How many sessions there are."""
    row = tx.one("count_sessions")
    return row[0] if row else 0


def _window_of(tx: Transaction, door: Door, window: WindowId) -> Window:
    row = tx.one("window_of_session", window=window, session=door.id)
    if row is None and windows.stands_behind(tx, door.window, window):
        row = tx.one("window", window=window)  # A fork's summary stands for what was said in another session.
    if row is None:
        raise NotFound(f"{door.id} has no window {window}")
    return windows.value(row)
