"""The life of a running turn: its holder starts, checkpoints, renews and ends it, or others end it for a lost holder.

The functions that take a `LockedRow` only change it. The scope of the verb that called them writes it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from backstay.errors import CorruptRecord, InvalidPayload
from backstay.model.codec import Encoded, check_body, decode_parts, encode_usage
from backstay.model.content import BODIES, Body, ToolCall, ToolResult, Usage
from backstay.model.event import (
    EventBody,
    SteeringTaken,
    TailLost,
    ToolReturned,
    TurnContinued,
    TurnEnded,
    TurnRecorded,
    TurnStarted,
    UsageReported,
    event_of,
)
from backstay.model.history.turn_messages import messages_of
from backstay.model.history.unsynced import SYNCED, Words
from backstay.model.ids import MessageId, SessionId, TurnId, WorkerId, message_of
from backstay.model.message import Message, NewMessage
from backstay.model.turn import (
    COMPACTOR,
    OUTCOMES,
    Cancelled,
    Checkpointed,
    Completed,
    Failed,
    Finished,
    Interrupted,
    OpenTurn,
    Outcome,
    Renewed,
    Steering,
    code_and_hint_of,
)
from backstay.store.engine import Transaction
from backstay.store.rows import Rows
from backstay.store.session_row import LockedRow, SessionScope, lock_held, lock_session, renew_held
from backstay.store.verbs import blob_store
from backstay.store.verbs.history.window_segments import origin_of
from backstay.store.verbs.turns import event_log, messages, tail_recovery, tool_ledger
from backstay.store.verbs.turns.event_log import MessageRange
from backstay.store.verbs.turns.messages import Written
from backstay.store.verbs.turns.turn_row import TurnRow, find_row

_LOOK_FIRST = "A tool may have run. Check its effects before you send the message again."
_NEXT_WAITING = Rows("next_waiting", TurnRow)
_STEERING_TURNS = Rows("steering_turns", TurnRow)
_TAKEN_TURNS = Rows("taken_turns", TurnRow)


def lock_and_reap(tx: Transaction, session: SessionId, owner: str) -> SessionScope:
    """Lock a session row, and end its running turn if the holder is dead. Raises `NotFound`."""
    scope = lock_session(tx, session, owner)
    reap(tx, scope.row)
    return scope


def start(tx: Transaction, session_row: LockedRow, turn: TurnRow) -> OpenTurn:
    """Start a waiting turn under a new lease of this worker."""
    written = Written(NewMessage(role="user", parts=turn.parts()), Encoded(turn.format, turn.input or "[]"))
    opened = open_turn(tx, session_row, turn.id, turn.agent, written, root=turn.root)
    tx.run("start_turn", turn=turn.id, now=tx.now, first_event=opened.event)
    # From now on, the text is a message.
    session_row.text_bytes -= turn.input_bytes
    blob_store.release(tx, turn.id)
    return opened


def open_turn(
    tx: Transaction, session_row: LockedRow, turn: TurnId, agent: str | None, input: Written, *, root: TurnId
) -> OpenTurn:
    """Take the lease for a turn and append its input to the window. The caller stores the row of the turn."""
    found = session_row.context
    take_lease(tx, session_row, turn)
    session_row.context += 1
    session_row.revision += 1
    position = session_row.length
    (message,) = messages.append(tx, session_row, turn, [input])
    message_range = MessageRange(session_row.window, position, position + 1)
    event_log.append_event(tx, session_row, TurnStarted(agent), turn, message_range)
    session_row.held_event = session_row.last_event
    # Decoded from the stored text: the sender may still change the lists and mappings that it sent.
    parts = decode_parts(message, *input.body)
    stored = Message(id=message, position=position, turn=turn, role="user", parts=parts, at=tx.now)
    return _opened(session_row, turn, agent, root, stored, found=found)


def open_resumed(
    tx: Transaction, session_row: LockedRow, turn: TurnRow, input: Message, *, interrupted: TurnId
) -> OpenTurn:
    """Take the lease for a turn whose input is already in the window. The caller stores the row of the turn."""
    take_lease(tx, session_row, turn.id)
    session_row.revision += 1
    event_log.append_event(tx, session_row, TurnContinued(turn.id), interrupted)
    origin = origin_of(tx, input.id)
    if origin is None:
        raise CorruptRecord(input.id, "is missing")
    message_range = MessageRange(origin.window, origin.position, origin.position + 1)
    event_log.append_event(tx, session_row, TurnStarted(turn.agent), turn.id, message_range)
    session_row.held_event = session_row.last_event
    return _opened(session_row, turn.id, turn.agent, turn.root, input, found=session_row.context)


def open_compaction(tx: Transaction, session_row: LockedRow, turn: TurnId, input: Message) -> OpenTurn:
    """Take the lease for a compaction, which has no input. The caller stores the row of the turn."""
    take_lease(tx, session_row, turn)
    session_row.revision += 1
    event_log.append_event(tx, session_row, TurnStarted(COMPACTOR), turn)
    session_row.held_event = session_row.last_event
    return _opened(session_row, turn, COMPACTOR, turn, input, found=session_row.context)


def take_lease(tx: Transaction, session_row: LockedRow, turn: TurnId) -> None:
    """Make this worker the holder of the session, for a turn. The fence grows, so no earlier holder can write."""
    session_row.fence += 1
    session_row.holder = tx.worker
    session_row.lease_until, session_row.lease_boot = tx.lease()
    session_row.lease_ms = tx.lease_ms
    session_row.running, session_row.cancelling = turn, 0


def _opened(
    session_row: LockedRow, turn: TurnId, agent: str | None, root: TurnId, input: Message, *, found: int
) -> OpenTurn:
    return OpenTurn(
        id=turn,
        session=session_row.id,
        owner=session_row.owner,
        agent=agent,
        root=root,
        window=session_row.window,
        holder=session_row.holder or WorkerId(""),
        fence=session_row.fence,
        found=found,
        context=session_row.context,
        event=session_row.held_event,
        lease_until=session_row.lease_until or 0,
        input=input,
    )


def renew(tx: Transaction, turn: OpenTurn) -> Renewed:
    """Renew the lease of a silent turn and read its inbox. The commit is synced, and with it all text before it."""
    with renew_held(tx, turn) as session_row:
        turn = tail_recovery.restore(tx, session_row, turn)
    lease_until = session_row.lease_until or 0
    return Renewed(
        open=msgspec.structs.replace(turn, lease_until=lease_until, unsynced=SYNCED), inbox=session_row.inbox()
    )


def checkpoint(
    tx: Transaction,
    turn: OpenTurn,
    bodies: Sequence[Body],
    *,
    take_steering: bool,
    repeats: Mapping[str, int],
    unsynced: Words | None,
) -> Checkpointed:
    """Store the bodies since the last checkpoint. `unsynced` is their text, if the commit is not synced."""
    tool_ledger.expect_call(tx, turn, bodies)
    with renew_held(tx, turn) as session_row:
        # First restore lost text: the bodies of this checkpoint come after it. Then skip bodies that an earlier attempt
        # stored, whose answer was lost, so that a repeated checkpoint adds nothing twice.
        held = tail_recovery.restore(tx, session_row, turn)
        before, after = session_row.last_event, session_row.held_event
        stored = tail_recovery.repeated(tx, session_row, held, bodies)
        keys = _append_bodies(tx, session_row, held, bodies if stored is None else stored.rest, repeats)
        taken = _take_steering(tx, session_row, held) if take_steering and session_row.steering else ()
        if stored is not None:
            after, keys, taken = held.event, stored.keys | keys, stored.steering + taken
        if session_row.last_event > before:
            session_row.held_event = session_row.last_event
            # The list and the idle time follow the work itself, not only its beginning and its end.
            session_row.touched_at = max(session_row.touched_at, tx.now)
    if unsynced is None or held is not turn:
        remembered = SYNCED
    else:
        remembered = held.unsynced.plus(after, unsynced) if session_row.held_event > held.event else held.unsynced
    opened = msgspec.structs.replace(
        held,
        event=session_row.held_event,
        window=session_row.window,
        lease_until=session_row.lease_until or 0,
        unsynced=remembered,
    )
    return Checkpointed(open=opened, inbox=session_row.inbox(), steering=taken, keys=keys)


Following = Callable[[Transaction, LockedRow], OpenTurn | None]


def finish(tx: Transaction, turn: OpenTurn, bodies: Sequence[Body], outcome: Outcome, then: Following) -> Finished:
    """End the turn: its events become messages. `then` may open another turn in the same transaction."""
    if type(outcome) not in OUTCOMES.values() or not _has_text_only(outcome):
        raise InvalidPayload(f"{outcome!r} is not an outcome", hint="Use Completed, Cancelled, Failed or Interrupted.")
    tx.expect("turn", turn=turn.id, owner=turn.owner)
    if not bodies:
        tx.expect("events_of_running_turn", session=turn.session, turn=turn.id)
    with lock_held(tx, turn) as session_row:
        turn = tail_recovery.restore(tx, session_row, turn)
        stored = tail_recovery.repeated(tx, session_row, turn, bodies)
        _append_bodies(tx, session_row, turn, bodies if stored is None else stored.rest, {})
        unbroken = session_row.context == turn.context
        row = find_row(tx, turn.id, turn.owner)
        added, whole = end(tx, session_row, row, outcome)
        # The state that the agent of this turn has read: the next turn may add to the window before the row is written.
        window, length, context = session_row.window, session_row.length, session_row.context
        opened = then(tx, session_row)
    return Finished(
        turn=row.value(),
        event=session_row.last_event,
        messages=added,
        revision=session_row.revision,
        window=window,
        length=length,
        context=context,
        unbroken=unbroken and whole,
        opened=opened,
        titled=session_row.title is not None,
    )


class Ended(NamedTuple):
    """The messages of an ended turn, and whether they contain its whole output."""

    messages: tuple[Message, ...]
    whole: bool


def end(tx: Transaction, session_row: LockedRow, row: TurnRow, outcome: Outcome) -> Ended:
    """End the running turn with an outcome, and store its output as messages.

    A turn that lost text which its holder could not store again is interrupted, even if its agent completed it.
    """
    events = event_log.of_running_turn(tx, session_row.id, row.id)
    whole = not any(isinstance(event, TailLost) and not event.rewritten for event in events)
    if isinstance(outcome, Completed) and not whole:
        outcome = Interrupted("the database lost text of the answer in a crash")
    if isinstance(outcome, Interrupted):
        outcome = replace(outcome, waiting_for_approval=bool(tool_ledger.undecided_calls(events)))
    doubtful = tool_ledger.give_up(tx, row, events)
    if isinstance(outcome, Failed) and doubtful:
        # The advice of the error may be to send the message again: that would repeat the tool.
        outcome = replace(outcome, hint=_LOOK_FIRST)
    folded = messages_of(events, partial=not isinstance(outcome, Completed))
    with_files = any(isinstance(event, ToolReturned) and event.result.files for event in events)
    if with_files:
        folded = [_with_own_files(tx, session_row.owner, message) for message in folded]
    position = session_row.length
    # The ids follow from the id of the turn, so a fork at a turn finds its first message without a search.
    names = [message_of(row.id, index) for index in range(len(folded))]
    added = messages.append_new(tx, session_row, row.id, messages.written(folded), names)
    body = TurnEnded(outcome, messages=len(added), may_have_run=doubtful)
    message_range = MessageRange(session_row.window, position, session_row.length) if added else None
    event_log.append_event(tx, session_row, body, row.id, message_range)
    _end_row(tx, session_row, row, outcome, usage_of(events))
    if with_files:
        blob_store.release(tx, row.id)
    if any(isinstance(event, SteeringTaken) for event in events):
        for taken in _TAKEN_TURNS.all(tx, session=session_row.id, turn=row.id):
            _end_taken(tx, session_row, taken, outcome)
    session_row.release_lease()
    session_row.turns += 0 if row.agent == COMPACTOR else 1
    session_row.revision += 1
    session_row.context += 1 if added else 0
    session_row.touched_at = max(session_row.touched_at, tx.now)
    return Ended(added, whole)


def _with_own_files(tx: Transaction, owner: str, message: NewMessage) -> NewMessage:
    """The message without files that the owner lacks: an export of a running turn has only the files of messages."""
    parts = tuple(
        replace(part, files=tuple(file for file in part.files if blob_store.owned(tx, owner, file.blob)))
        if isinstance(part, ToolResult)
        else part
        for part in message.parts
    )
    return replace(message, parts=parts)


def end_waiting(tx: Transaction, session_row: LockedRow, row: TurnRow, outcome: Outcome) -> None:
    """End a turn that never ran."""
    if row.held:
        session_row.held -= 1
    else:
        session_row.steering -= row.steer
    session_row.waiting -= 1
    session_row.revision += 1
    event_log.append_event(tx, session_row, TurnEnded(outcome), row.id)
    _end_row(tx, session_row, row, outcome, Usage())
    blob_store.release(tx, row.id)


def start_next(tx: Transaction, session_row: LockedRow, agents: Collection[str]) -> OpenTurn | None:
    """Store waiting records, and start the next waiting turn if its agent is among these."""
    while session_row.running is None and session_row.queue:
        turn = _NEXT_WAITING.one(tx, session=session_row.id)
        if turn is None:
            raise CorruptRecord(session_row.id, f"counts {session_row.queue} waiting turns and has none")
        if turn.is_record:
            _dequeue(session_row, turn)
            add_recorded(tx, session_row, turn.id, messages.written(turn.messages()))
            _end_row(tx, session_row, turn, Completed(), Usage())
            blob_store.release(tx, turn.id)
        elif turn.agent in agents:
            _dequeue(session_row, turn)
            return start(tx, session_row, turn)
        else:
            return None
    return None


def add_recorded(tx: Transaction, session_row: LockedRow, turn: TurnId, written: Sequence[Written]) -> list[MessageId]:
    """Append the finished messages of a caller as one turn."""
    position = session_row.length
    ids = messages.append(tx, session_row, turn, written)
    session_row.turns += 1
    session_row.revision += 1
    session_row.context += 1
    message_range = MessageRange(session_row.window, position, session_row.length)
    event_log.append_event(tx, session_row, TurnRecorded(), turn, message_range)
    return ids


def reap(tx: Transaction, session_row: LockedRow) -> bool:
    """End the running turn if its holder is dead. Returns whether it was."""
    lease = session_row.lease()
    if lease is None or session_row.running is None or not tx.lapsed(lease):
        return False
    abandon(tx, session_row, session_row.running, "its process died")
    return True


def abandon(tx: Transaction, session_row: LockedRow, turn: TurnId, why: str) -> None:
    """End a running turn without its holder, and continue with the queue."""
    # The fence grows first: a holder that only slept fails at its next write and cannot write into the next turn.
    session_row.fence += 1
    row = find_row(tx, turn, session_row.owner)
    cancelled = bool(row.cancel_requested)
    end(tx, session_row, row, Cancelled("cancelled before it stopped") if cancelled else Interrupted(why))
    start_next(tx, session_row, ())


def _dequeue(session_row: LockedRow, turn: TurnRow) -> None:
    session_row.waiting -= 1
    session_row.steering -= turn.steer


def _append_bodies(
    tx: Transaction, session_row: LockedRow, turn: OpenTurn, bodies: Sequence[Body], repeats: Mapping[str, int]
) -> dict[str, str]:
    """Append the bodies of an agent to the event log. Returns the keys of its tool calls."""
    keys: dict[str, str] = {}
    for given in bodies:
        if not isinstance(given, BODIES):
            raise InvalidPayload(
                f"an agent yielded {type(given).__name__}",
                hint="Yield Text, Thought, ToolCall, ToolResult, Usage, Custom.",
            )
        body = check_body(given, tx.limits)
        if isinstance(body, ToolCall):
            keys[body.id] = tool_ledger.make(tx, session_row, turn, body, repeats.get(body.id))
            continue
        if isinstance(body, ToolResult):
            tool_ledger.note_result(tx, turn, body)
            # Until the turn ends, and its messages keep the files, the turn does.
            messages.reference_blobs(tx, turn.owner, turn.id, [body])
        event_log.append_event(tx, session_row, event_of(body), turn.id)
    return keys


def _take_steering(tx: Transaction, session_row: LockedRow, turn: OpenTurn) -> tuple[Steering, ...]:
    """Hand the waiting steering inputs to the running turn; they end with its outcome."""
    taken = []
    for row in _STEERING_TURNS.all(tx, session=session_row.id):
        parts = row.parts()
        tx.run("take_steering", turn=row.id, taken_by=turn.id, now=tx.now)
        event_log.append_event(tx, session_row, SteeringTaken(row.id, parts), turn.id)
        _dequeue(session_row, row)
        taken.append(Steering(turn=row.id, parts=parts))
    session_row.revision += 1
    return tuple(taken)


def _has_text_only(outcome: Outcome) -> bool:
    values = msgspec.structs.asdict(outcome)
    return isinstance(values.pop("waiting_for_approval", False), bool) and all(
        isinstance(text, str) for text in values.values()
    )


def _end_taken(tx: Transaction, session_row: LockedRow, row: TurnRow, outcome: Outcome) -> None:
    event_log.append_event(tx, session_row, TurnEnded(outcome), row.id)
    _end_row(tx, session_row, row, outcome, Usage())
    blob_store.release(tx, row.id)


def _end_row(tx: Transaction, session_row: LockedRow, row: TurnRow, outcome: Outcome, usage: Usage) -> None:
    session_row.text_bytes -= row.input_bytes
    row.state, row.outcome, row.reason = "ended", str(outcome.__struct_config__.tag), outcome.reason
    row.code, row.hint = code_and_hint_of(outcome)
    row.input, row.usage, row.ended_at = None, encode_usage(usage), tx.now
    tx.run(
        "end_turn",
        turn=row.id,
        outcome=row.outcome,
        reason=row.reason,
        code=row.code,
        hint=row.hint,
        usage=row.usage,
        now=tx.now,
    )


def usage_of(events: Sequence[EventBody]) -> Usage:
    """The usage of a turn, by its events."""
    return sum((event.usage for event in events if isinstance(event, UsageReported)), start=Usage())
