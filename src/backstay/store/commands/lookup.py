"""Commands that read sessions, windows, messages, turns and tool calls."""

from collections.abc import Collection, Sequence

from backstay.errors import InvalidPayload
from backstay.model.addresses.address import Address
from backstay.model.event import START, UNSEEN, Cursor, EventPage, FeedPage
from backstay.model.history.snapshot import SessionBadge, SessionSnapshot, SnapshotQuery
from backstay.model.ids import (
    MessageId,
    SessionId,
    TurnId,
    WindowId,
    check_message_id,
    check_session_id,
    check_turn_id,
    check_window_id,
)
from backstay.model.message import Message, MessagePage
from backstay.model.operations.store_info import OwnerUsage
from backstay.model.session import SessionCursor, SessionFilter, SessionInfo, SessionPage
from backstay.model.turn import ToolCallRecord, TurnInfo
from backstay.model.window import Window
from backstay.store.commands.command import Read
from backstay.store.commands.input_checks import (
    check_address,
    check_filter,
    check_kind,
    check_limit,
    check_owner,
    check_query,
    check_whole,
)
from backstay.store.engine import Transaction
from backstay.store.session_row import find
from backstay.store.verbs import owner_totals, session_queries, session_snapshot
from backstay.store.verbs.turns import event_log

ANY = SessionFilter()
LATEST = SnapshotQuery()


def usage(*, owner: str) -> Read[OwnerUsage]:
    """Read how much an owner stores. The cost does not depend on the amount.

    Args:
        owner: The owner.

    Returns:
        The usage.

    Raises:
        InvalidPayload: The owner's name is not valid.
    """
    return Read(name="usage", owner=owner, verb=lambda tx: owner_totals.usage(tx, check_owner(tx, owner)))


def session(session: SessionId, *, owner: str) -> Read[SessionInfo]:
    """Read a session as it is now. A turn whose holder is dead is never shown as running.

    Args:
        session: The session.
        owner: The owner of the session.

    Returns:
        The session.

    Raises:
        NotFound: The owner has no such session.
    """
    where = check_session_id(session)
    return Read(name="session", owner=owner, verb=lambda tx: find(tx, where, owner).value(tx.now))


def revision(session: SessionId, *, owner: str) -> Read[int]:
    """Read the revision of a session, as cheaply as the database can.

    Args:
        session: The session.
        owner: The owner of the session.

    Returns:
        The revision.

    Raises:
        NotFound: The owner has no such session.
    """
    where = check_session_id(session)
    return Read(
        name="revision", owner=owner, snapshot=False, verb=lambda tx: session_queries.revision(tx, where, owner)
    )


def heads(watched: Collection[tuple[SessionId, str]]) -> Read[dict[SessionId, Cursor]]:
    """Read the cursor after the last event of each of these sessions.

    Args:
        watched: The sessions, each with its owner.

    Returns:
        The cursors. A session that does not exist, or belongs to another owner, is left out.
    """
    return Read(name="heads", owner=None, verb=lambda tx: session_queries.heads(tx, watched))


def list_sessions(
    *,
    owner: str,
    filter: SessionFilter = ANY,
    after: SessionCursor | None = None,
    limit: int = 50,
) -> Read[SessionPage]:
    """Read a page of sessions, newest activity first. The cost does not depend on the number of sessions.

    Args:
        owner: The owner of the sessions.
        filter: Which sessions are listed.
        after: The cursor of the page before.
        limit: How many sessions the page has at most.

    Returns:
        The page.

    Raises:
        InvalidPayload: An argument is not valid.
        TooLarge: A text of the filter is too long.
    """
    check_limit(limit)
    check_kind("filter", filter, SessionFilter)
    if after is not None:
        check_kind("after", after, SessionCursor)

    def page(tx: Transaction) -> SessionPage:
        found, more = session_queries.sessions(tx, owner, check_filter(tx, filter), after, limit)
        now = tx.now
        return SessionPage(sessions=tuple([row.value(now) for row in found]), next=more)

    return Read(name="list", owner=owner, snapshot=False, verb=page)


def at(address: Address, *, owner: str) -> Read[SessionInfo]:
    """Read the session that an address points to, open or not. Creates nothing.

    Args:
        address: The address. A workspace address without a host is one of this machine.
        owner: The owner of the session.

    Returns:
        The session.

    Raises:
        NotFound: The address does not point to a session yet.
        InvalidPayload: The value is not an address.
    """
    check_address(address)
    return Read(
        name="at",
        owner=owner,
        snapshot=False,
        verb=lambda tx: session_queries.at(tx, address.on(tx.host), owner).value(tx.now),
    )


def beginning_with(prefix: str, *, owner: str, limit: int = 20) -> Read[tuple[SessionInfo, ...]]:
    """Read the sessions whose ids begin with a prefix, the older first.

    Args:
        prefix: The beginning of the ids.
        owner: The owner of the sessions.
        limit: How many sessions are returned at most.

    Returns:
        The sessions.

    Raises:
        InvalidPayload: An argument is not valid.
    """
    check_limit(limit)
    check_kind("the beginning of an id", prefix, str)

    def found(tx: Transaction) -> tuple[SessionInfo, ...]:
        if not prefix.isascii() or "\0" in prefix:
            return ()
        return tuple(row.value(tx.now) for row in session_queries.beginning_with(tx, prefix, owner, limit))

    return Read(name="beginning_with", owner=owner, snapshot=False, verb=found)


def ending_with(letters: str, *, owner: str, limit: int = 20) -> Read[tuple[SessionInfo, ...]]:
    """Read the sessions whose ids end with some letters, the older first. It reads the ids of all of them.

    Args:
        letters: The end of the ids.
        owner: The owner of the sessions.
        limit: How many sessions are returned at most.

    Returns:
        The sessions.

    Raises:
        InvalidPayload: An argument is not valid.
    """
    check_limit(limit)
    check_kind("the end of an id", letters, str)

    def found(tx: Transaction) -> tuple[SessionInfo, ...]:
        if not (letters.isascii() and letters.isalnum() and letters == letters.lower()):
            return ()
        return tuple(row.value(tx.now) for row in session_queries.ending_with(tx, letters, owner, limit))

    return Read(name="ending_with", owner=owner, snapshot=False, verb=found)


def messages(
    session: SessionId,
    *,
    owner: str,
    window: WindowId | None = None,
    before: int | None = None,
    after: int | None = None,
    last: int | None = None,
) -> Read[MessagePage]:
    """Read messages of a window: all, those between positions, or the last few of them.

    Args:
        session: The session.
        owner: The owner of the session.
        window: The window; None: the current one.
        before: The position after the last message to read.
        after: The position before the first message to read.
        last: How many messages are read at most, from the end.

    Returns:
        The messages and their positions.

    Raises:
        NotFound: The owner has no such session, or the session has no such window.
        InvalidPayload: A position is not a whole number.
    """
    where, which = check_session_id(session), None if window is None else check_window_id(window)
    for name, value in (("before", before), ("after", after), ("last", last)):
        if value is not None:
            check_whole(name, value)
    return Read(
        name="messages",
        owner=owner,
        verb=lambda tx: session_queries.messages_page(tx, where, owner, which, before=before, after=after, last=last),
    )


def message_position(session: SessionId, message: MessageId, *, owner: str) -> Read[int]:
    """Read the position of a message in the window that the session reads now.

    Args:
        session: The session.
        message: The message.
        owner: The owner of the session.

    Returns:
        The position.

    Raises:
        NotFound: The owner has no such session, or its history does not contain the message.
    """
    where, which = check_session_id(session), check_message_id(message)
    return Read(
        name="message_position", owner=owner, verb=lambda tx: session_queries.message_position(tx, where, owner, which)
    )


def rest_of_turn(message: MessageId, *, owner: str, limit: int = 100) -> Read[tuple[Message, ...]]:
    """Read a message, whichever session it is in, and the messages that its turn added after it.

    Args:
        message: The message.
        owner: The owner of its session.
        limit: How many messages are read at most.

    Returns:
        The messages, in the window in which they were written.

    Raises:
        NotFound: The owner has no such message.
        InvalidPayload: The limit is not valid.
    """
    which, most = check_message_id(message), check_limit(limit)
    return Read(name="rest_of_turn", owner=owner, verb=lambda tx: session_queries.rest_of_turn(tx, which, owner, most))


def snapshot(session: SessionId, query: SnapshotQuery = LATEST, *, owner: str) -> Read[SessionSnapshot]:
    """Read a page of a session with the state of its turns, as of `session.last_event`.

    A reader that follows the event log from that number on misses no event and reads none twice.

    Args:
        session: The session.
        query: Which page.
        owner: The owner of the session.

    Returns:
        The page.

    Raises:
        NotFound: The owner has no such session, or the session has no such window or message.
        InvalidPayload: The query is not valid.
    """
    where = check_session_id(session)
    check_query(query)
    return Read(name="snapshot", owner=owner, verb=lambda tx: session_snapshot.snapshot(tx, where, owner, query))


def badges(sessions: Sequence[SessionId], *, owner: str) -> Read[tuple[SessionBadge, ...]]:
    """Read the badges of sessions: the data that a list shows besides their rows.

    Args:
        sessions: The sessions. Those of other owners are left out.
        owner: The owner of the sessions.

    Returns:
        One badge per session.

    Raises:
        NotFound: One of the ids is not a session id.
    """
    which = [check_session_id(session) for session in sessions]
    return Read(name="badges", owner=owner, verb=lambda tx: session_snapshot.badges(tx, which, owner))


def lineage(session: SessionId, *, owner: str) -> Read[tuple[Window, ...]]:
    """Read all windows of a session, oldest first.

    Args:
        session: The session.
        owner: The owner of the session.

    Returns:
        The windows.

    Raises:
        NotFound: The owner has no such session.
    """
    where = check_session_id(session)
    return Read(name="lineage", owner=owner, verb=lambda tx: session_queries.lineage(tx, where, owner))


def turn(turn: TurnId, *, owner: str) -> Read[TurnInfo]:
    """Read a turn as it is now.

    Args:
        turn: The turn.
        owner: The owner of its session.

    Returns:
        The turn.

    Raises:
        NotFound: The owner has no such turn.
    """
    which = check_turn_id(turn)
    return Read(name="turn", owner=owner, verb=lambda tx: session_queries.turn(tx, which, owner))


def last_turn(session: SessionId, *, owner: str) -> Read[TurnInfo]:
    """Read the turn at the end of a session's history: after an interruption, the one that `resume` continues.

    Args:
        session: The session.
        owner: The owner of the session.

    Returns:
        The turn.

    Raises:
        NotFound: The owner has no such session.
        NothingToDo: The session has no turn yet.
    """
    which = check_session_id(session)
    return Read(name="last_turn", owner=owner, verb=lambda tx: session_queries.last_turn(tx, which, owner))


def waiting(session: SessionId, *, owner: str) -> Read[tuple[TurnInfo, ...]]:
    """Read the waiting turns of a session, in the order of their start.

    Args:
        session: The session.
        owner: The owner of the session.

    Returns:
        The turns.

    Raises:
        NotFound: The owner has no such session.
    """
    where = check_session_id(session)
    return Read(name="waiting", owner=owner, verb=lambda tx: session_queries.waiting(tx, where, owner))


def calls(turn: TurnId, *, owner: str) -> Read[tuple[ToolCallRecord, ...]]:
    """Read the tool calls of a turn, with their effects as far as they are known.

    Args:
        turn: The turn.
        owner: The owner of its session.

    Returns:
        The calls.

    Raises:
        NotFound: The owner has no such turn.
    """
    which = check_turn_id(turn)
    return Read(name="calls", owner=owner, verb=lambda tx: session_queries.calls(tx, which, owner))


def ledger(root: TurnId, *, owner: str) -> Read[tuple[ToolCallRecord, ...]]:
    """Read the tool calls of a turn and of the turns that continued it after an interruption, in order.

    Args:
        root: The first of these turns.
        owner: The owner of its session.

    Returns:
        The calls.

    Raises:
        NotFound: The owner has no such turn.
    """
    which = check_turn_id(root)
    return Read(name="ledger", owner=owner, verb=lambda tx: session_queries.ledger(tx, which, owner))


def addresses(session: SessionId, *, owner: str) -> Read[tuple[str, ...]]:
    """Read the addresses that point to a session.

    Args:
        session: The session.
        owner: The owner of the session.

    Returns:
        The spellings of the addresses.

    Raises:
        NotFound: The owner has no such session.
    """
    where = check_session_id(session)
    return Read(name="addresses", owner=owner, verb=lambda tx: session_queries.addresses(tx, where, owner))


def events_after(session: SessionId, cursor: Cursor = START, *, owner: str, limit: int = 500) -> Read[EventPage]:
    """Read the event log of a session after a cursor: in order and without a gap, or with the reason for the gap.

    Args:
        session: The session.
        cursor: The cursor after the last event that was read.
        owner: The owner of the session.
        limit: How many events the page has at most.

    Returns:
        The events, and the cursor after the last of them.

    Raises:
        NotFound: The owner has no such session.
        InvalidPayload: The cursor or the limit is not valid.
    """
    where = check_session_id(session)
    check_limit(limit)
    check_kind("cursor", cursor, Cursor)
    if check_whole("number", cursor.number) < 0 or check_whole("fence", cursor.fence) < UNSEEN:
        raise InvalidPayload(
            f"invalid cursor: number {cursor.number}, fence {cursor.fence}", hint="Pass a cursor of an earlier page."
        )
    return Read(name="events_after", owner=owner, verb=lambda tx: event_log.follow(tx, where, owner, cursor, limit))


def feed(position: int | None, *, owner: str, limit: int = 500) -> Read[FeedPage]:
    """Read the events of all sessions of an owner after a position, in the order of their writing.

    Deltas that are folded later appear once more, as the fold: readers recognise them by their numbers.

    Args:
        position: The position after the last event that was read. None: an empty page at the end of the feed.
        owner: The owner of the sessions.
        limit: How many events the page has at most.

    Returns:
        The events, and the position after the last of them.

    Raises:
        InvalidPayload: The position or the limit is not valid.
    """
    check_limit(limit)
    if position is not None and check_whole("position", position) < 0:
        raise InvalidPayload(f"position is {position!r}", hint="Pass the position of a feed event, or None.")
    return Read(name="feed", owner=owner, verb=lambda tx: event_log.feed(tx, owner, position, limit))
