"""History: undo, redo, omit, fork and rotate, and where retry and edit cut. They move pointers and destroy nothing."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from backstay.errors import Conflict, CorruptRecord, InvalidPayload, LeaseLost, NotFound, NothingToDo
from backstay.model.codec import encode_parts, write_parts
from backstay.model.event import SessionCreated, WindowOpened
from backstay.model.ids import MessageId, SessionId, TurnId, WindowId, message_of
from backstay.model.message import Message, NewMessage
from backstay.model.session import Session
from backstay.model.turn import OpenTurn, Rotated
from backstay.model.window import Moved, WindowReason
from backstay.store.door import Door, find, find_held, leave
from backstay.store.engine import Transaction
from backstay.store.verbs import events, messages, pairing, running, sessions, windows
from backstay.store.verbs.messages import Written
from backstay.store.verbs.turns import find as find_turn
from backstay.store.verbs.windows import Opening, Spot


def undo(tx: Transaction, session: SessionId, owner: str, expect_revision: int | None) -> Moved:
    """Take the last turn back, as a unit."""
    door = enter_idle(tx, session, owner, expect_revision, "undo")
    found = windows.last_turn(tx, door.window, door.length)
    if found is None:
        raise NothingToDo(f"{session} has no turn to undo")
    _, spot = found
    branch(tx, door, spot, "undo")
    return _moved(tx, door)


def redo(tx: Transaction, session: SessionId, owner: str, expect_revision: int | None) -> Moved:
    """Bring back what the last undo took, as long as nothing was said since."""
    door = enter_idle(tx, session, owner, expect_revision, "redo")
    here = windows.get(tx, door.window)
    if here.reason != "undo" or here.parent is None or door.length > here.start:
        raise NothingToDo(f"{session} has nothing to redo", hint="Redo is possible until the next message.")
    parent = windows.get(tx, here.parent)
    door.window, door.start, door.length = parent.id, parent.start, windows.length(tx, parent.id)
    messages.show_last_of_window(tx, door)
    _opened(tx, door, WindowOpened(parent.id, here.id, "redo", door.length))
    return _moved(tx, door)


def omit(
    tx: Transaction,
    session: SessionId,
    owner: str,
    message: MessageId,
    *,
    keep: Collection[int],
    expect_revision: int | None,
) -> Moved:
    """Leave a message out of what the session reads, or all but some of its parts; it stays in the lineage."""
    door = enter_idle(tx, session, owner, expect_revision, "leave a message out")
    place = windows.locate(tx, door.window, message)
    if place is None:
        raise NotFound(f"{message} is not part of {door.id}", hint="It may have been left out already.")
    if place.window != door.window:
        raise Conflict(f"{message} was compacted", hint="Delete the session to remove what a summary stands for.")
    said = messages.at(tx, *place)
    if said.role == "summary":
        raise Conflict(f"{message} stands for what was compacted", hint="Leave out what is not summarised.")
    left = _kept(said, keep)
    window, parent, after = tx.ids.window(), door.window, range(place.position + 1, door.length)
    opening = Opening(door.id, door.last_event + 1, parent, "edit")
    door.start = windows.open_without(tx, window, opening, place, after=after, replaced=left is not None)
    door.window, door.length = window, door.start
    if left is not None:
        turn = said.turn if said.turn is not None and _is_here(tx, door, said.turn) else None
        messages.put(tx, door, tx.ids.message(), turn, left, position=place.position)
        door.length = max(door.length, place.position + 1)
    messages.show_last_of_window(tx, door)
    _opened(tx, door, WindowOpened(window, parent, "edit", door.length))
    return _moved(tx, door)


def _kept(said: Message, keep: Collection[int]) -> Written | None:
    """What stays of a message of which only these parts are kept; None if that is nothing."""
    if any(type(index) is not int or not 0 <= index < len(said.parts) for index in keep):
        raise InvalidPayload(f"{said.id} has {len(said.parts)} parts, not {sorted(keep)}", hint="Count from 0.")
    if len(set(keep)) == len(said.parts):
        raise InvalidPayload(f"all parts of {said.id} would be kept", hint="Name those that shall stay, or none.")
    parts = tuple(part for index, part in enumerate(said.parts) if index in keep)
    return Written(NewMessage(role=said.role, parts=parts, partial=said.partial), write_parts(parts)) if parts else None


def _is_here(tx: Transaction, door: Door, turn: TurnId) -> bool:
    """Whether a turn is the session's own, and not one of a session it was forked from."""
    row = tx.one("turn", turn=turn, owner=door.owner)
    return row is not None and row[1] == door.id


def before_last_turn(tx: Transaction, door: Door) -> tuple[Message, Spot]:
    """The input of the last turn, and the spot before it."""
    found = windows.last_turn(tx, door.window, door.length)
    if found is None:
        raise NothingToDo(f"{door.id} has no turn to retry")
    turn, spot = found
    said = messages.at(tx, *spot)
    if said.role != "user" or said.turn != turn:
        raise NothingToDo(f"{turn} has no input that could be tried again")
    return said, spot


def before_message(tx: Transaction, door: Door, message: MessageId) -> tuple[TurnId, Spot]:
    """The turn in which a person said this, and the spot before it."""
    place = windows.locate(tx, door.window, message)
    if place is None:
        raise NotFound(f"{message} is not part of {door.id}", hint="It may have been undone, or belong elsewhere.")
    found = messages.at(tx, *place)
    if found.role != "user" or found.turn is None:
        raise InvalidPayload(f"{message} was not said by a person", hint="Only a person's messages can be edited.")
    turn = windows.last_turn(tx, place.window, place.position + 1)
    if turn is None:
        raise CorruptRecord(message, "belongs to no turn")
    return turn


def branch(tx: Transaction, door: Door, spot: Spot, reason: WindowReason) -> None:
    """Move the session to a new window that ends before the spot. The caller writes the door."""
    window, parent = tx.ids.window(), door.window
    windows.open_cut(tx, window, Opening(door.id, door.last_event + 1, parent, reason), spot)
    door.window, door.start, door.length = window, spot.position, spot.position
    messages.show_last_of_window(tx, door)
    _opened(tx, door, WindowOpened(window, parent, reason, door.length))


def fork(tx: Transaction, session: SessionId, owner: str, at: MessageId | TurnId | None) -> Session:
    """A new session that begins as this one is, up to and including a message, or up to the end of a turn."""
    door = find(tx, session, owner)
    running.reap(tx, door)
    forked = fork_from(tx, door, at)
    leave(tx, forked)
    return forked.value(tx.now)


def fork_from(tx: Transaction, door: Door, at: MessageId | TurnId | None) -> Door:
    """The door of a new session made from this one's ended turns. The caller writes it; the source is untouched."""
    spot = _fork_spot(tx, door, at)
    session, window = tx.ids.session(), tx.ids.window()
    sessions.insert(
        tx,
        session,
        door.owner,
        window=window,
        family=door.family,
        place=door.place,
        source=door.id,
        agent=door.agent,
    )
    forked = find(tx, session, door.owner)
    windows.open_cut(tx, window, Opening(session, forked.last_event + 1, door.window, "fork"), spot)
    forked.start = forked.length = spot.position
    forked.context = 1
    messages.show_last_of_window(tx, forked)
    if door.title is not None:
        forked.title, forked.title_by = door.title, "agent"
        tx.run("set_title", session=session, title=door.title, title_by="agent")
    events.tell(tx, forked, SessionCreated(door.id))
    return forked


def rotate(
    tx: Transaction,
    session: SessionId,
    owner: str,
    *,
    parent: WindowId,
    said: Sequence[NewMessage],
    keep_from: int,
    turn: OpenTurn | None,
) -> Rotated:
    """Open the next window: the summary, then what its parent has from `keep_from` on, however late it arrived."""
    door = _enter_to_rotate(tx, session, owner, turn)
    if door.window != parent:
        return _somebody_was_first(tx, door, parent, turn)
    if not 0 <= keep_from <= door.length:
        raise InvalidPayload(f"keep_from is {keep_from}, but {parent} has {door.length} messages")
    if keep_from == 0:
        return _rotated(tx, door, turn, won=False)
    if not said or any(message.role not in ("summary", "system") for message in said):
        raise InvalidPayload("a compaction needs a summary of what it leaves behind", hint="Use message.summary(…).")
    _open_compacted(tx, door, said, keep_from)
    leave(tx, door)
    return _rotated(tx, door, _moved_up(turn, keep_from, len(said)), won=True)


def open_calls(tx: Transaction, door: Door) -> frozenset[str]:
    """The tool calls at the end of the window that have no result yet."""
    tail: list[Message] = []
    for stretch in reversed(windows.stretches(tx, door.window, door.length)):
        for message in messages.read_back(tx, stretch, limit=_TAIL):
            tail.append(message)
            if message.role != "tool":
                return frozenset(_open_after(tail))
    return frozenset()


# Results of one answer's calls are seldom more than a few messages; a tail longer than this has no open call.
_TAIL = 256


def _open_after(newest_first: list[Message]) -> set[str]:
    still_open: set[str] | None = set()
    for message in reversed(newest_first):
        still_open = pairing.after(message, still_open)
    return still_open or set()


def enter_idle(tx: Transaction, session: SessionId, owner: str, expect_revision: int | None, verb: str) -> Door:
    """The door of a session in which nothing runs or waits, at the revision the caller expects."""
    door = find(tx, session, owner)
    running.reap(tx, door)
    door.require_open(tx.now)
    door.require_idle(verb)
    door.require_revision(expect_revision)
    return door


def _fork_spot(tx: Transaction, door: Door, at: MessageId | TurnId | None) -> Spot:
    spot = Spot(door.window, door.length) if at is None else _spot_behind(tx, door, at)
    last = windows.last_turn(tx, spot.window, spot.position)
    if last is None or last[0] != door.running:
        return spot
    if at is not None:
        raise Conflict(f"{at} belongs to {door.running}, which still runs", hint="Fork at an earlier message, or wait.")
    return last[1]


def _spot_behind(tx: Transaction, door: Door, at: MessageId | TurnId) -> Spot:
    """The spot behind a message, or behind all that a turn left."""
    message = MessageId(at) if at.startswith("msg_") else _message_in(tx, TurnId(at), door.owner)
    place = None if message is None else windows.locate(tx, door.window, message)
    if message is None or place is None:
        raise NotFound(f"{at} is not part of {door.id}", hint="Fork at what the session reads now.")
    if message == at:
        return Spot(place.window, place.position + 1)
    return windows.end_of_turn(tx, place, messages.turn_of(tx, message))


def _message_in(tx: Transaction, turn: TurnId, owner: str) -> MessageId | None:
    """A message of a turn: the first that its agent said, or else what it was asked."""
    said = message_of(turn, 0)
    if tx.one("message_place", message=said) is not None:
        return said
    row = find_turn(tx, turn, owner)
    place = tx.one("first_said", session=row.session, first=row.event, turn=turn)
    return None if place is None else messages.at(tx, place[0], place[1]).id


def _open_compacted(tx: Transaction, door: Door, said: Sequence[NewMessage], keep_from: int) -> None:
    parent, window = door.window, tx.ids.window()
    opening = Opening(door.id, door.last_event + 1, parent, "compaction")
    kept = range(keep_from, door.length)
    start = windows.open_compacted(tx, window, opening, kept=kept, summaries=len(said))
    door.window, door.length = window, 0
    preview = door.preview
    messages.append(tx, door, None, [Written(message, encode_parts(message.parts, tx.limits)) for message in said])
    door.start = door.length = start
    door.preview = preview
    _opened(tx, door, WindowOpened(window, parent, "compaction", start))


def _enter_to_rotate(tx: Transaction, session: SessionId, owner: str, turn: OpenTurn | None) -> Door:
    """The door for whoever may rotate now: the holder of the running turn, or anyone while nothing runs."""
    if turn is not None:
        if (turn.session, turn.owner) != (session, owner):
            raise InvalidPayload(f"{turn.id} does not run in {session}")
        return find_held(tx, turn)
    door = find(tx, session, owner)
    running.reap(tx, door)
    door.require_open(tx.now)
    running.require_free(door)
    return door


def _somebody_was_first(tx: Transaction, door: Door, parent: WindowId, turn: OpenTurn | None) -> Rotated:
    row = tx.one("compaction_of", window=parent)
    if row is None or row[1] != door.id:
        raise LeaseLost(
            f"{door.id} reads {door.window} now, not {parent}", hint="Summarise what the session reads now."
        )
    return _rotated(tx, door, turn, won=False)


def _moved_up(turn: OpenTurn | None, keep_from: int, summaries: int) -> OpenTurn | None:
    """The proof of a turn whose input stands elsewhere in the next window; right after the summary if it was left."""
    if turn is None:
        return None
    position = summaries + max(0, turn.input.position - keep_from)
    return replace(turn, input=replace(turn.input, position=position))


def _rotated(tx: Transaction, door: Door, turn: OpenTurn | None, *, won: bool) -> Rotated:
    # The proof counts only its own holder's change: if somebody else's came between, it stays behind, and that shows.
    return Rotated(
        open=None if turn is None else replace(turn, window=door.window, context=turn.context + won),
        window=windows.get(tx, door.window),
        won=won,
        revision=door.revision,
        context=door.context,
        length=door.length,
    )


def _opened(tx: Transaction, door: Door, body: WindowOpened) -> None:
    door.revision += 1
    door.context += 1
    events.tell(tx, door, body, door.running)


def _moved(tx: Transaction, door: Door) -> Moved:
    leave(tx, door)
    return Moved(window=windows.get(tx, door.window), revision=door.revision, context=door.context, length=door.length)
