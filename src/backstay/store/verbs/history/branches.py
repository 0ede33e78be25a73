"""Undo, redo, omit, fork and rotate, and the positions where retry and edit cut.

These verbs open windows and move the pointer of the session. They never delete messages.
"""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from backstay.errors import Conflict, CorruptRecord, InvalidPayload, LeaseLost, NotFound, NothingToDo
from backstay.model.codec import encode_parts, write_parts
from backstay.model.event import SessionCreated, WindowOpened
from backstay.model.history.unsynced import SYNCED
from backstay.model.ids import MessageId, SessionId, TurnId, WindowId, message_of
from backstay.model.message import Message, NewMessage
from backstay.model.session import SessionInfo, Ttl
from backstay.model.turn import OpenTurn, Rotated
from backstay.model.window import Moved, Window, WindowReason
from backstay.store.engine import Transaction
from backstay.store.rows import Rows
from backstay.store.session_row import LockedRow, SessionRow, SessionScope, insert_session, lock_held, new_row
from backstay.store.verbs import owner_totals
from backstay.store.verbs.history import window_segments
from backstay.store.verbs.history.window_segments import FoundTurn, Layout, Opening, Position, origin_of
from backstay.store.verbs.session_ttl import set_ttl
from backstay.store.verbs.turns import call_pairing, event_log, lifecycle, messages, tail_recovery
from backstay.store.verbs.turns.messages import Written
from backstay.store.verbs.turns.turn_row import TURN
from backstay.store.verbs.turns.turn_row import find as find_turn

# The results of one answer are seldom more than a few messages; a tail longer than this has no open call.
_TAIL = 256
_COMPACTION_OF = Rows("compaction_of", Window)
_FIRST_OF_TURN = Rows("first_message_of_turn", Position)


def undo(tx: Transaction, session: SessionId, owner: str, expect_revision: int | None) -> Moved:
    """Take back the last turn as a unit. Raises `NothingToDo` without a turn."""
    with lock_idle_session(tx, session, owner, expect_revision, "undo") as session_row:
        layout = window_segments.layout_of(tx, session_row.window)
        found = window_segments.last_turn(tx, session_row.window, session_row.length, layout)
        if found is None:
            raise NothingToDo(f"{session} has no turn to undo")
        opened = branch(tx, session_row, found.location, "undo", layout)
    return _moved(opened, session_row)


def redo(tx: Transaction, session: SessionId, owner: str, expect_revision: int | None) -> Moved:
    """Take back the last undo. Raises `NothingToDo` once a message was appended since."""
    with lock_idle_session(tx, session, owner, expect_revision, "redo") as session_row:
        here = window_segments.get(tx, session_row.window)
        if here.reason != "undo" or here.parent is None or session_row.length > here.start:
            raise NothingToDo(f"{session} has nothing to redo", hint="Redo is possible until the next message.")
        parent = window_segments.get(tx, here.parent)
        session_row.window, session_row.start = parent.id, parent.start
        session_row.length = window_segments.length(tx, parent.id)
        messages.show_last_of_window(tx, session_row)
        _change_window(tx, session_row, WindowOpened(parent.id, here.id, "redo", session_row.length))
    return _moved(parent, session_row)


def omit(
    tx: Transaction,
    session: SessionId,
    owner: str,
    message: MessageId,
    *,
    keep: Collection[int],
    expect_revision: int | None,
) -> Moved:
    """Leave a message, or all but some of its parts, out of the window. It stays in the lineage."""
    with lock_idle_session(tx, session, owner, expect_revision, "omit a message") as session_row:
        location = window_segments.locate(tx, session_row.window, message)
        if location is None:
            raise NotFound(f"{message} is not part of {session_row.id}", hint="It may have been omitted already.")
        if location.window != session_row.window:
            raise Conflict(f"{message} was compacted", hint="Delete the session to remove summarised messages.")
        found = messages.at(tx, *location)
        if found.role == "summary":
            raise Conflict(f"{message} is the summary of a compaction", hint="Omit messages after the summary.")
        _open_without(tx, session_row, found, location, _rest_of(found, keep))
    return _moved(window_segments.get(tx, session_row.window), session_row)


def _open_without(
    tx: Transaction, session_row: LockedRow, found: Message, location: Position, rest: Written | None
) -> None:
    """Move the session to a new window without a message, or with its remaining parts."""
    window, parent, after = tx.ids.window(), session_row.window, range(location.position + 1, session_row.length)
    opening = Opening(session_row.id, session_row.last_event + 1, parent, "edit")
    session_row.start = window_segments.open_without(
        tx, window, opening, location, after=after, replaced=rest is not None
    )
    session_row.window, session_row.length = window, session_row.start
    if rest is not None:
        # The turns of another session, which a fork shares, are not referred to from here.
        turn = found.turn if found.turn is not None and _is_here(tx, session_row, found.turn) else None
        messages.insert(tx, session_row, tx.ids.message(), turn, rest, position=location.position)
        session_row.length = max(session_row.length, location.position + 1)
    messages.show_last_of_window(tx, session_row)
    _change_window(tx, session_row, WindowOpened(window, parent, "edit", session_row.length))


def _rest_of(message: Message, keep: Collection[int]) -> Written | None:
    """The message with only these parts; None if there are none."""
    if any(type(index) is not int or not 0 <= index < len(message.parts) for index in keep):
        raise InvalidPayload(f"{message.id} has {len(message.parts)} parts, not {sorted(keep)}", hint="Count from 0.")
    if len(set(keep)) == len(message.parts):
        raise InvalidPayload(f"all parts of {message.id} would be kept", hint="Name the parts to keep, or none.")
    parts = tuple(part for index, part in enumerate(message.parts) if index in keep)
    return (
        Written(NewMessage(role=message.role, parts=parts, partial=message.partial), write_parts(parts))
        if parts
        else None
    )


def _is_here(tx: Transaction, session_row: SessionRow, turn: TurnId) -> bool:
    """Whether a turn belongs to the session, and not to one that it was forked from."""
    row = TURN.one(tx, turn=turn, owner=session_row.owner)
    return row is not None and row.session == session_row.id


def before_last_turn(tx: Transaction, session_row: SessionRow) -> tuple[Message, Position]:
    """The input of the last turn, and the position before it."""
    found = window_segments.last_turn(tx, session_row.window, session_row.length)
    if found is None:
        raise NothingToDo(f"{session_row.id} has no turn to retry")
    message = messages.at(tx, *found.location)
    if message.role != "user" or message.turn != found.turn:
        raise NothingToDo(f"{found.turn} has no input to retry")
    return message, found.location


def before_message(tx: Transaction, session_row: SessionRow, message: MessageId) -> FoundTurn:
    """The turn of a person's message, and the position before the turn."""
    location = window_segments.locate(tx, session_row.window, message)
    if location is None:
        raise NotFound(
            f"{message} is not part of {session_row.id}", hint="It may have been undone, or belong elsewhere."
        )
    found = messages.at(tx, *location)
    if found.role != "user" or found.turn is None:
        raise InvalidPayload(f"{message} is not a message of a person", hint="Only a person's messages can be edited.")
    turn = window_segments.last_turn(tx, location.window, location.position + 1)
    if turn is None:
        raise CorruptRecord(message, "does not belong to a turn")
    return turn


def branch(
    tx: Transaction, session_row: LockedRow, location: Position, reason: WindowReason, layout: Layout | None = None
) -> Window:
    """Move the session to a new window that ends before a position. Pass the layout of its window if you have it."""
    window, parent = tx.ids.window(), session_row.window
    opening = Opening(session_row.id, session_row.last_event + 1, parent, reason)
    if layout is None or layout.window != location.window:
        layout = window_segments.layout_of(tx, location.window)
    opened = window_segments.open_cut(tx, window, opening, location, layout)
    session_row.window, session_row.start, session_row.length = window, location.position, location.position
    messages.show_last_of_window(tx, session_row, layout)
    _change_window(tx, session_row, WindowOpened(window, parent, reason, session_row.length))
    return opened


def fork(
    tx: Transaction, session: SessionId, owner: str, at: MessageId | TurnId | None, ttl: Ttl | None
) -> SessionInfo:
    """Make a new session that begins like this one, up to and including a message, or up to the end of a turn."""
    with (
        lifecycle.lock_and_reap(tx, session, owner) as session_row,
        fork_session(tx, session_row, at, ttl) as forked,
    ):
        pass
    return forked.value(tx.now)


def fork_session(
    tx: Transaction, session_row: SessionRow, at: MessageId | TurnId | None, ttl: Ttl | None = None
) -> SessionScope:
    """Make a new session from the ended turns of this one, which stays as it is. Returns the new one, locked."""
    location = _fork_location(tx, session_row, at)
    owner_totals.require_session(tx, session_row.owner)
    layout = window_segments.layout_of(tx, location.window)
    row = _forked_row(tx, session_row, location)
    if ttl is not None:
        set_ttl(row, ttl)
    if location == Position(session_row.window, session_row.length):
        row.preview = session_row.preview
    else:
        messages.show_last_of_window(tx, row, layout)
    scope = insert_session(tx, row)
    opening = Opening(row.id, row.last_event, session_row.window, "fork")
    window_segments.open_cut(tx, row.window, opening, location, layout)
    event_log.append_first(tx, row, SessionCreated(session_row.id))
    return scope


def _forked_row(tx: Transaction, session_row: SessionRow, location: Position) -> LockedRow:
    """The row of a new session that begins with the messages before a position."""
    row = new_row(tx, session_row.owner)
    row.family, row.place, row.agent, row.source = (
        session_row.family,
        session_row.place,
        session_row.agent,
        session_row.id,
    )
    row.start = row.length = location.position
    row.context = row.last_event = 1
    if session_row.title is not None:
        row.title, row.title_by = session_row.title, "agent"
    return row


def rotate(
    tx: Transaction,
    session: SessionId,
    owner: str,
    *,
    parent: WindowId,
    summaries: Sequence[NewMessage],
    keep_from: int,
    turn: OpenTurn | None,
) -> Rotated:
    """Open the next window: the summary, then the messages of its parent from `keep_from` on, also late ones."""
    with _lock_to_rotate(tx, session, owner, turn) as session_row:
        turn = None if turn is None else tail_recovery.restore(tx, session_row, turn)
        won = session_row.window == parent and keep_from != 0
        if session_row.window != parent:
            _require_compacted(tx, session_row, parent)
        elif not 0 <= keep_from <= session_row.length:
            raise InvalidPayload(f"keep_from is {keep_from}, but {parent} has {session_row.length} messages")
        elif won:
            _open_compacted(tx, session_row, summaries, keep_from)
            turn = _moved_up(turn, keep_from, len(summaries))
    return _rotated(tx, session_row, turn, won=won)


def open_calls(tx: Transaction, session_row: SessionRow) -> frozenset[str]:
    """The tool calls at the end of the window that have no result yet."""
    tail: list[Message] = []
    for segment in reversed(window_segments.segments(tx, session_row.window, session_row.length)):
        for message in messages.read_back(tx, segment, limit=_TAIL):
            tail.append(message)
            if message.role != "tool":
                return frozenset(_open_after(tail))
    return frozenset()


def _open_after(newest_first: list[Message]) -> set[str]:
    still_open: set[str] | None = set()
    for message in reversed(newest_first):
        still_open = call_pairing.after(message, still_open)
    return still_open or set()


def lock_idle_session(
    tx: Transaction, session: SessionId, owner: str, expect_revision: int | None, verb: str
) -> SessionScope:
    """Lock a session without running or waiting turns, at the revision that the caller expects.

    Raises:
        NotFound, SessionEnded, SessionExpired, SessionBusy, RevisionMismatch: It is not such a session.
    """
    scope = lifecycle.lock_and_reap(tx, session, owner)
    scope.row.require_open(tx.now)
    scope.row.require_idle(verb)
    scope.row.require_revision(expect_revision)
    return scope


def _fork_location(tx: Transaction, session_row: SessionRow, at: MessageId | TurnId | None) -> Position:
    location = Position(session_row.window, session_row.length) if at is None else _location_after(tx, session_row, at)
    if session_row.running is None:
        return location
    last = window_segments.last_turn(tx, location.window, location.position)
    if last is None or last.turn != session_row.running:
        return location
    if at is not None:
        raise Conflict(
            f"{at} belongs to {session_row.running}, which still runs", hint="Fork at an earlier message, or wait."
        )
    return last.location


def _location_after(tx: Transaction, session_row: SessionRow, at: MessageId | TurnId) -> Position:
    """The position after a message, or after all messages of a turn."""
    message = MessageId(at) if at.startswith("msg_") else _message_in(tx, TurnId(at), session_row.owner)
    location = None if message is None else window_segments.locate(tx, session_row.window, message)
    if message is None or location is None:
        raise NotFound(f"{at} is not part of {session_row.id}", hint="Fork at a message of the current window.")
    if message == at:
        return Position(location.window, location.position + 1)
    return window_segments.end_of_turn(tx, location, messages.turn_of(tx, message))


def _message_in(tx: Transaction, turn: TurnId, owner: str) -> MessageId | None:
    """A message of a turn: the first of its agent, or else its input."""
    first = message_of(turn, 0)
    if origin_of(tx, first) is not None:
        return first
    row = find_turn(tx, turn, owner)
    location = _FIRST_OF_TURN.one(tx, session=row.session, first=row.event, turn=turn)
    return None if location is None else messages.at(tx, *location).id


def _open_compacted(tx: Transaction, session_row: LockedRow, summaries: Sequence[NewMessage], keep_from: int) -> None:
    if not summaries or any(message.role not in ("summary", "system") for message in summaries):
        raise InvalidPayload(
            "a compaction needs a summary of the messages that it replaces", hint="Use message.summary(…)."
        )
    parent, window = session_row.window, tx.ids.window()
    opening = Opening(session_row.id, session_row.last_event + 1, parent, "compaction")
    kept = range(keep_from, session_row.length)
    start = window_segments.open_compacted(tx, window, opening, kept=kept, summaries=len(summaries))
    # The summaries are appended at the positions 0 and up; then the window is as long as with the kept messages.
    session_row.window, session_row.length = window, 0
    preview = session_row.preview
    written = [Written(message, encode_parts(message.parts, tx.limits)) for message in summaries]
    messages.append(tx, session_row, None, written)
    session_row.start = session_row.length = start
    session_row.preview = preview
    _change_window(tx, session_row, WindowOpened(window, parent, "compaction", start))


def _lock_to_rotate(tx: Transaction, session: SessionId, owner: str, turn: OpenTurn | None) -> SessionScope:
    """Lock the session for a rotation: by the holder of the running turn, or by anyone while no turn runs."""
    if turn is not None:
        if (turn.session, turn.owner) != (session, owner):
            raise InvalidPayload(f"{turn.id} does not run in {session}")
        return lock_held(tx, turn)
    scope = lifecycle.lock_and_reap(tx, session, owner)
    scope.row.require_open(tx.now)
    scope.row.require_free()
    return scope


def _require_compacted(tx: Transaction, session_row: SessionRow, parent: WindowId) -> None:
    """Raise `LeaseLost` unless another compaction of this window was first."""
    first = _COMPACTION_OF.one(tx, window=parent)
    if first is None or first.session != session_row.id:
        raise LeaseLost(
            f"{session_row.id} reads {session_row.window} now, not {parent}",
            hint="Summarise the current window.",
        )


def _moved_up(turn: OpenTurn | None, keep_from: int, summaries: int) -> OpenTurn | None:
    """The open turn with the position of its input in the next window: right after the summary if it was left out."""
    if turn is None:
        return None
    position = summaries + max(0, turn.input.position - keep_from)
    return replace(turn, input=replace(turn.input, position=position))


def _rotated(tx: Transaction, session_row: SessionRow, turn: OpenTurn | None, *, won: bool) -> Rotated:
    # The open turn counts only the change of its own holder: if others changed the context, it stays behind.
    opened = None if turn is None else replace(turn, window=session_row.window, context=turn.context + won)
    return Rotated(
        # The write that opens a window is synced, and with it all text before it.
        open=replace(opened, unsynced=SYNCED) if opened is not None and won else opened,
        window=window_segments.get(tx, session_row.window),
        won=won,
        revision=session_row.revision,
        context=session_row.context,
        length=session_row.length,
    )


def _change_window(tx: Transaction, session_row: LockedRow, body: WindowOpened) -> None:
    session_row.revision += 1
    session_row.context += 1
    event_log.append_event(tx, session_row, body, session_row.running)


def _moved(window: Window, session_row: SessionRow) -> Moved:
    return Moved(window=window, revision=session_row.revision, context=session_row.context, length=session_row.length)
