"""A running turn: started, checkpointed, renewed and ended by its holder, or ended for a holder that is gone."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from backstay.errors import CorruptRecord, InvalidPayload, SessionBusy
from backstay.model.codec import Encoded, arguments_hash, check_body, check_name, decode_parts, encode_usage
from backstay.model.content import BODIES, Body, ToolCall, ToolResult, Usage
from backstay.model.event import (
    ApprovalDecided,
    EventBody,
    SteeringTaken,
    TailLost,
    ToolCalled,
    TurnEnded,
    TurnRecorded,
    TurnStarted,
    UsageReported,
    event_of,
)
from backstay.model.ids import MessageId, TurnId, WorkerId, message_of
from backstay.model.message import Message, NewMessage
from backstay.model.story import messages_of
from backstay.model.turn import (
    COMPACTOR,
    OUTCOMES,
    Approval,
    Call,
    Cancelled,
    Checkpointed,
    Completed,
    Finished,
    Interrupted,
    OpenTurn,
    Outcome,
    Renewed,
    Steering,
)
from backstay.store.door import Door, find_held, keep, leave
from backstay.store.engine import Transaction
from backstay.store.verbs import blobs, events, messages
from backstay.store.verbs.events import Said
from backstay.store.verbs.messages import Written
from backstay.store.verbs.turns import TurnRow, call_value, find_row


def start(tx: Transaction, door: Door, turn: TurnRow) -> OpenTurn:
    """Let a waiting turn run under a new lease of this worker. The caller writes the door."""
    said = Written(NewMessage(role="user", parts=turn.parts()), Encoded(turn.format, turn.input or "[]"))
    opened = open_turn(tx, door, turn.id, turn.agent, said, root=turn.root)
    tx.run("start_turn", turn=turn.id, now=tx.now, first_event=opened.event)
    blobs.release(tx, turn.id)
    return opened


def open_turn(
    tx: Transaction, door: Door, turn: TurnId, agent: str | None, input: Written, *, root: TurnId
) -> OpenTurn:
    """Take the lease for a turn and put its input into the window. The caller writes the turn's row and the door."""
    found = door.context
    take_lease(tx, door)
    door.running, door.cancelling = turn, 0
    door.context += 1
    door.revision += 1
    position = door.length
    (message,) = messages.append(tx, door, turn, [input])
    events.tell(tx, door, TurnStarted(agent), turn, Said(door.window, position, position + 1))
    door.held_event = door.last_event
    # As it is stored: the sender may still change the lists and mappings that it sent.
    parts = decode_parts(message, *input.body)
    said = Message(id=message, position=position, turn=turn, role="user", parts=parts, at=tx.now)
    return _proof(door, turn, agent, root, said, found=found)


def go_on_with(tx: Transaction, door: Door, turn: TurnRow, said: Message) -> OpenTurn:
    """Take the lease for a turn whose input is in the window already. The caller writes the turn's row and the door."""
    take_lease(tx, door)
    door.running, door.cancelling = turn.id, 0
    door.revision += 1
    events.tell(tx, door, TurnStarted(turn.agent), turn.id, Said(*messages.place_of(tx, said.id)))
    door.held_event = door.last_event
    return _proof(door, turn.id, turn.agent, turn.root, said, found=door.context)


def open_compaction(tx: Transaction, door: Door, turn: TurnId, said: Message) -> OpenTurn:
    """Take the lease for a compaction, which has no input. The caller writes the turn's row and the door."""
    take_lease(tx, door)
    door.running, door.cancelling = turn, 0
    door.revision += 1
    events.tell(tx, door, TurnStarted(COMPACTOR), turn)
    door.held_event = door.last_event
    return _proof(door, turn, COMPACTOR, turn, said, found=door.context)


def take_lease(tx: Transaction, door: Door) -> None:
    """Become the holder. The fence grows, so whoever held the session before can no longer write."""
    door.fence += 1
    door.holder = tx.worker
    door.lease_until, door.lease_boot = tx.lease()


def _proof(door: Door, turn: TurnId, agent: str | None, root: TurnId, said: Message, *, found: int) -> OpenTurn:
    return OpenTurn(
        id=turn,
        session=door.id,
        owner=door.owner,
        agent=agent,
        root=root,
        window=door.window,
        holder=door.holder or WorkerId(""),
        fence=door.fence,
        found=found,
        context=door.context,
        event=door.held_event,
        lease_until=door.lease_until or 0,
        input=said,
    )


def renew(tx: Transaction, turn: OpenTurn) -> Renewed:
    """Keep the lease of a silent turn and fetch its mail."""
    door = find_held(tx, turn)
    door.lease_until, door.lease_boot = tx.lease()
    keep(tx, door)
    return Renewed(open=msgspec.structs.replace(turn, lease_until=door.lease_until), mail=door.mail())


def checkpoint(
    tx: Transaction, turn: OpenTurn, bodies: Sequence[Body], *, take_steering: bool, repeats: Mapping[str, int]
) -> Checkpointed:
    """Store what the agent said since the last checkpoint."""
    door = find_held(tx, turn)
    _notice_lost_tail(tx, door, turn)
    keys = _tell_bodies(tx, door, turn, bodies, repeats)
    taken = _take_steering(tx, door, turn) if take_steering and door.steering else ()
    door.held_event = door.last_event
    door.lease_until, door.lease_boot = tx.lease()
    keep(tx, door)
    proof = msgspec.structs.replace(
        turn, fence=door.fence, event=door.held_event, window=door.window, lease_until=door.lease_until
    )
    return Checkpointed(open=proof, mail=door.mail(), steering=taken, keys=keys)


Following = Callable[[Transaction, Door], OpenTurn | None]


def finish(tx: Transaction, turn: OpenTurn, bodies: Sequence[Body], outcome: Outcome, then: Following) -> Finished:
    """End the turn: its story becomes messages. Then something else may be opened in the same transaction."""
    if type(outcome) not in OUTCOMES.values() or not isinstance(outcome.reason, str):
        raise InvalidPayload(f"{outcome!r} is no outcome", hint="Use Completed, Cancelled, Failed or Interrupted.")
    door = find_held(tx, turn)
    _notice_lost_tail(tx, door, turn)
    _tell_bodies(tx, door, turn, bodies, {})
    unbroken = door.context == turn.context
    row = find_row(tx, turn.id, turn.owner)
    said, whole = end(tx, door, row, outcome)
    window, length, context = door.window, door.length, door.context
    opened = then(tx, door)
    leave(tx, door)
    return Finished(
        turn=row.value(),
        event=door.last_event,
        messages=tuple(said),
        revision=door.revision,
        window=window,
        length=length,
        context=context,
        unbroken=unbroken and whole,
        opened=opened,
    )


class Ended(NamedTuple):
    """The messages that a turn left, and whether they are all it said."""

    messages: list[MessageId]
    whole: bool


def end(tx: Transaction, door: Door, row: TurnRow, outcome: Outcome) -> Ended:
    """End the running turn in this way, whoever asks, keeping everything it said. The caller writes the door.

    Words that were lost with a database that crashed under a living holder leave the answer marked as partial.
    """
    story = events.of_turn(tx, door.id, row.id, row.first_event or 0)
    whole = not any(isinstance(event, TailLost) for event in story)
    said = messages_of(story, partial=not (whole and isinstance(outcome, Completed)))
    position = door.length
    names = [message_of(row.id, place) for place in range(len(said))]
    ids = messages.append(tx, door, row.id, messages.written(said), names)
    body = TurnEnded(outcome, messages=len(ids), may_have_run=_give_up_calls(tx, row, story))
    events.tell(tx, door, body, row.id, Said(door.window, position, door.length) if ids else None)
    _end_row(tx, row, outcome, usage_of(story))
    if any(isinstance(event, SteeringTaken) for event in story):
        for taken in tx.all("taken_turns", session=door.id, turn=row.id):
            _end_taken(tx, door, TurnRow(*taken), outcome)
    door.free()
    door.turns += 0 if row.agent == COMPACTOR else 1
    door.revision += 1
    door.context += 1 if ids else 0
    door.touched_at = max(door.touched_at, tx.now)
    return Ended(ids, whole)


def _give_up_calls(tx: Transaction, row: TurnRow, story: Sequence[EventBody]) -> tuple[str, ...]:
    """The calls that have no result: they may have run, and from now on nobody knows."""
    calls = [event.call for event in story if isinstance(event, ToolCalled)]
    if not calls:
        return ()
    # What was left to the client was never ours to run.
    theirs = {call.id for call in calls if call.client}
    return tuple(call for _, call in sorted(tx.all("give_up_calls", turn=row.id)) if call not in theirs)


def end_waiting(tx: Transaction, door: Door, row: TurnRow, outcome: Outcome) -> None:
    """End a turn that never ran. The caller writes the door."""
    door.waiting -= 1
    door.steering -= row.steer
    door.revision += 1
    events.tell(tx, door, TurnEnded(outcome), row.id)
    _end_row(tx, row, outcome, Usage())
    blobs.release(tx, row.id)


def go_on(tx: Transaction, door: Door, agents: Collection[str]) -> OpenTurn | None:
    """Take what waits: finished messages go in at once; the next turn starts if its agent is served here."""
    while door.running is None and door.waiting:
        row = tx.one("next_waiting", session=door.id)
        if row is None:
            raise CorruptRecord(door.id, f"counts {door.waiting} waiting turns and has none")
        turn = TurnRow(*row)
        if turn.is_record:
            _leave_queue(door, turn)
            add_recorded(tx, door, turn.id, messages.written(turn.messages()))
            _end_row(tx, turn, Completed(), Usage())
            blobs.release(tx, turn.id)
        elif turn.agent in agents:
            _leave_queue(door, turn)
            return start(tx, door, turn)
        else:
            return None
    return None


def add_recorded(tx: Transaction, door: Door, turn: TurnId, said: Sequence[Written]) -> list[MessageId]:
    """Add a caller's finished messages as one turn. The caller writes the door."""
    from_position = door.length
    ids = messages.append(tx, door, turn, said)
    door.turns += 1
    door.revision += 1
    door.context += 1
    events.tell(tx, door, TurnRecorded(), turn, Said(door.window, from_position, door.length))
    return ids


def reap(tx: Transaction, door: Door) -> bool:
    """End the running turn if its holder is gone; whether it did. Writes the door, whatever the caller does next."""
    lease = door.lease()
    if lease is None or door.running is None or not tx.lapsed(lease):
        return False
    abandon(tx, door, door.running, "its process is gone")
    return True


def abandon(tx: Transaction, door: Door, turn: TurnId, why: str) -> None:
    """End a running turn for which nobody speaks any more, and let go on what waits. Writes the door."""
    # The fence grows first, so a holder that only slept fails at its next write instead of writing into what follows.
    door.fence += 1
    row = find_row(tx, turn, door.owner)
    asked = bool(row.cancel_requested)
    end(tx, door, row, Cancelled("cancelled before it stopped") if asked else Interrupted(why))
    go_on(tx, door, ())
    leave(tx, door)


def require_free(door: Door) -> None:
    """Raise while a turn runs."""
    if door.running is not None:
        until = "" if door.holder is None else f" (held by {door.holder})"
        raise SessionBusy(f"{door.running} is running in {door.id}{until}")


def _leave_queue(door: Door, turn: TurnRow) -> None:
    door.waiting -= 1
    door.steering -= turn.steer


def _notice_lost_tail(tx: Transaction, door: Door, turn: OpenTurn) -> None:
    """The holder wrote more than the store still has: readers who saw it must be told to read again."""
    if door.held_event != turn.event:
        door.fence += 1
        events.tell(tx, door, TailLost(), turn.id)


def _tell_bodies(
    tx: Transaction, door: Door, turn: OpenTurn, bodies: Sequence[Body], repeats: Mapping[str, int]
) -> dict[str, str]:
    """Add what the agent said to the story; the keys of its tool calls."""
    keys: dict[str, str] = {}
    for said in bodies:
        if not isinstance(said, BODIES):
            raise InvalidPayload(
                f"an agent yielded {type(said).__name__}",
                hint="Yield Text, Thought, ToolCall, ToolResult, Usage, Custom.",
            )
        body = check_body(said, tx.limits)
        if isinstance(body, ToolCall):
            keys[body.id] = _make_call(tx, door, turn, body, repeats.get(body.id))
            continue
        if isinstance(body, ToolResult):
            _note_result(tx, turn, body)
        events.tell(tx, door, event_of(body), turn.id)
    return keys


def _make_call(tx: Transaction, door: Door, turn: OpenTurn, call: ToolCall, repeats: int | None) -> str:
    """Enter a call in the ledger and in the story; its key. What was decided of an earlier one holds for this one."""
    line = _note_call(tx, turn, call, repeats)
    events.tell(tx, door, ToolCalled(call, line.key), turn.id)
    if line.approval in ("approved", "denied"):
        events.tell(tx, door, ApprovalDecided(call.id, line.approval == "approved"), turn.id)
    return line.key


def _note_call(tx: Transaction, turn: OpenTurn, call: ToolCall, repeats: int | None) -> Call:
    """Enter a call in the ledger, or an earlier one of its root turn that is made again."""
    check_name("a tool call's id", call.id, tx.limits.name_bytes)
    check_name("a tool's name", call.name, tx.limits.name_bytes)
    if tx.one("call", turn=turn.id, call=call.id) is not None:
        raise InvalidPayload(f"tool call {call.id!r} was already made in {turn.id}", hint="Give every call its own id.")
    earlier = None if repeats is None else _earlier_line(tx, turn, call, repeats)
    approval: Approval = earlier.approval if earlier else "asked" if call.approval else "none"
    # The tool runs as soon as this is written, unless a person must allow it first, or it is the client's to run.
    at_once = approval in ("none", "approved") and not call.client
    line = Call(
        turn=turn.id,
        root=turn.root,
        ordinal=earlier.ordinal if earlier else _next_ordinal(tx, turn),
        call=call.id,
        name=call.name,
        arguments_hash=arguments_hash(call.arguments),
        approval=approval,
        effect="called",
        started_at=tx.now if at_once else None,
    )
    tx.run(
        "repeat_call" if earlier else "add_call",
        root=line.root,
        ordinal=line.ordinal,
        turn=line.turn,
        call=line.call,
        name=line.name,
        arguments_hash=line.arguments_hash,
        approval=line.approval,
        started_at=line.started_at,
    )
    return line


def _earlier_line(tx: Transaction, turn: OpenTurn, call: ToolCall, ordinal: int) -> Call:
    """Only the very same call of an interrupted turn, whose effect nobody knows, is made again under its key."""
    row = tx.one("line_of_ledger", root=turn.root, ordinal=ordinal) if type(ordinal) is int else None
    line = None if row is None else call_value(row)
    if (
        line is None
        or line.turn == turn.id
        or not (line.effect == "unknown" or (line.effect == "called" and line.approval != "none"))
        or (line.name, line.arguments_hash) != (call.name, arguments_hash(call.arguments))
    ):
        raise InvalidPayload(f"tool call {call.id!r} is no repetition of call {ordinal} of {turn.root}")
    return line


def _next_ordinal(tx: Transaction, turn: OpenTurn) -> int:
    counted = tx.one("count_calls", root=turn.root)
    return counted[0] if counted else 0


def _note_result(tx: Transaction, turn: OpenTurn, result: ToolResult) -> None:
    row = tx.one("call", turn=turn.id, call=result.id)
    if row is None:
        raise InvalidPayload(f"tool result {result.id!r} answers no call of {turn.id}", hint="Record the call first.")
    if row[7] != "called":
        raise InvalidPayload(f"tool call {result.id!r} of {turn.id} already has a result")
    tx.run("return_call", turn=turn.id, call=result.id, now=tx.now)


def _take_steering(tx: Transaction, door: Door, turn: OpenTurn) -> tuple[Steering, ...]:
    """Hand the waiting steering inputs over to the running turn; from here on they share its fate."""
    taken = []
    for found in tx.all("steering_turns", session=door.id):
        row = TurnRow(*found)
        parts = row.parts()
        tx.run("take_steering", turn=row.id, taken_by=turn.id, now=tx.now)
        events.tell(tx, door, SteeringTaken(row.id, parts), turn.id)
        _leave_queue(door, row)
        taken.append(Steering(turn=row.id, parts=parts))
    door.revision += 1
    return tuple(taken)


def _end_taken(tx: Transaction, door: Door, row: TurnRow, outcome: Outcome) -> None:
    events.tell(tx, door, TurnEnded(outcome), row.id)
    _end_row(tx, row, outcome, Usage())
    blobs.release(tx, row.id)


def _end_row(tx: Transaction, row: TurnRow, outcome: Outcome, usage: Usage) -> None:
    row.state, row.outcome, row.reason = "ended", str(outcome.__struct_config__.tag), outcome.reason
    row.input, row.usage, row.ended_at = None, encode_usage(usage), tx.now
    tx.run("end_turn", turn=row.id, outcome=row.outcome, reason=row.reason, usage=row.usage, now=tx.now)


def usage_of(story: Sequence[EventBody]) -> Usage:
    """What a turn has used, by its events."""
    return sum((event.usage for event in story if isinstance(event, UsageReported)), start=Usage())
