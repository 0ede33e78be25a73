"""The tool-effect ledger: a call is stored before its tool runs, its result after.

A call without a result may have run. Its entry stays `unknown`: nothing that an agent does changes it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from backstay.errors import InvalidPayload
from backstay.model.codec import arguments_hash, check_name
from backstay.model.content import Body, ToolCall, ToolResult
from backstay.model.event import ApprovalDecided, EventBody, ToolCalled, ToolReturned
from backstay.model.turn import Approval, OpenTurn, ToolCallRecord
from backstay.store.engine import Transaction
from backstay.store.rows import Rows
from backstay.store.session_row import LockedRow
from backstay.store.verbs.turns import event_log
from backstay.store.verbs.turns.turn_row import CALL, TurnRow

_CALL_IN_LEDGER = Rows("call_in_ledger", ToolCallRecord)


class _OpenCall(NamedTuple):
    """A call without a result."""

    ordinal: int
    call: str


class _NextCall(NamedTuple):
    """The ordinal of the next call, and how many calls of the turn have its id already."""

    ordinal: int
    made: int


_NEXT_CALL = Rows("next_call", _NextCall)
_GIVE_UP_CALLS = Rows("give_up_calls", _OpenCall)


def expect_call(tx: Transaction, turn: OpenTurn, bodies: Sequence[Body]) -> None:
    """Announce the read of the first call among the bodies of an agent."""
    for body in bodies:
        # An id that is not valid is rejected later, once the lease is proved.
        if isinstance(body, ToolCall) and isinstance(body.id, str) and body.id.isprintable():
            tx.expect("next_call", root=turn.root, turn=turn.id, call=body.id)
            return


def make(tx: Transaction, session_row: LockedRow, turn: OpenTurn, call: ToolCall, repeats: int | None) -> str:
    """Store a call in the ledger and in the event log, and return its key. It keeps the decision on an earlier call."""
    line = _note(tx, turn, call, repeats)
    event_log.append_event(tx, session_row, ToolCalled(call, line.key), turn.id)
    if line.approval in ("approved", "denied"):
        event_log.append_event(tx, session_row, ApprovalDecided(call.id, line.approval == "approved"), turn.id)
    return line.key


def note_result(tx: Transaction, turn: OpenTurn, result: ToolResult) -> None:
    """Store the result of a call that has none yet."""
    if tx.changed("return_call", turn=turn.id, call=result.id, now=tx.now):
        return
    if CALL.one(tx, turn=turn.id, call=result.id) is None:
        raise InvalidPayload(
            f"tool result {result.id!r} does not answer a call of {turn.id}", hint="Record the call first."
        )
    raise InvalidPayload(f"tool call {result.id!r} of {turn.id} already has a result")


def undecided_calls(events: Sequence[EventBody]) -> list[str]:
    """The ids of the calls that still wait for a person, by the events of their turn."""
    undecided: dict[str, None] = {}
    for event in events:
        match event:
            case ToolCalled(call=call) if call.approval and not call.client:
                undecided[call.id] = None
            case ApprovalDecided(call=decided) | ToolReturned(result=ToolResult(id=decided)):
                undecided.pop(decided, None)
            case _:
                pass
    return list(undecided)


def give_up(tx: Transaction, row: TurnRow, events: Sequence[EventBody]) -> tuple[str, ...]:
    """Mark the calls without a result as unknown, because they may have run, and return their ids."""
    made = [event.call for event in events if isinstance(event, ToolCalled)]
    if not made:
        return ()
    # Calls of the client's own tools were never ours to run.
    client_calls = {call.id for call in made if call.client}
    given_up = sorted(_GIVE_UP_CALLS.all(tx, turn=row.id))
    return tuple(entry.call for entry in given_up if entry.call not in client_calls)


def _note(tx: Transaction, turn: OpenTurn, call: ToolCall, repeats: int | None) -> ToolCallRecord:
    """Store a new call, or the repetition of an earlier call of its root turn."""
    check_name("a tool call's id", call.id, tx.limits.name_bytes)
    check_name("a tool's name", call.name, tx.limits.name_bytes)
    following = _NEXT_CALL.one(tx, root=turn.root, turn=turn.id, call=call.id) or _NextCall(0, 0)
    if following.made:
        raise InvalidPayload(f"tool call {call.id!r} was already made in {turn.id}", hint="Give every call its own id.")
    earlier = None if repeats is None else _earlier_line(tx, turn, call, repeats)
    approval: Approval = "asked" if call.approval else "none"
    if earlier is None:
        return _write(tx, turn, call, approval, ordinal=following.ordinal)
    if earlier.effect == "unknown" and not call.idempotent:
        # A person allowed one repetition. The earlier entry stays unknown, so this one needs its own key.
        tx.run("use_run_again", root=earlier.root, ordinal=earlier.ordinal)
        return _write(tx, turn, call, "approved" if call.approval else "none", ordinal=following.ordinal)
    return _write(tx, turn, call, earlier.approval, ordinal=earlier.ordinal, repeats=True)


def _write(
    tx: Transaction, turn: OpenTurn, call: ToolCall, approval: Approval, *, ordinal: int, repeats: bool = False
) -> ToolCallRecord:
    """Store an entry: a new one, or instead of the entry with this ordinal."""
    # The tool runs once this is committed, unless a person must approve it first or the client runs it.
    at_once = approval in ("none", "approved") and not call.client
    line = ToolCallRecord(
        turn=turn.id,
        root=turn.root,
        ordinal=ordinal,
        call=call.id,
        name=call.name,
        arguments_hash=arguments_hash(call.arguments),
        approval=approval,
        effect="called",
        started_at=tx.now if at_once else None,
    )
    tx.run(
        "repeat_call" if repeats else "add_call",
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


def _earlier_line(tx: Transaction, turn: OpenTurn, call: ToolCall, ordinal: int) -> ToolCallRecord:
    """The entry of an interrupted turn that this call repeats. Raises `InvalidPayload` if it may not."""
    line = _CALL_IN_LEDGER.one(tx, root=turn.root, ordinal=ordinal) if type(ordinal) is int else None
    if (
        line is None
        or line.turn == turn.id
        or (line.name, line.arguments_hash) != (call.name, arguments_hash(call.arguments))
        or not _may_be_made_again(line, call)
    ):
        raise InvalidPayload(
            f"tool call {call.id!r} may not repeat call {ordinal} of {turn.root}",
            hint="Repeat the same call of an interrupted turn: one that never ran, is idempotent, or was allowed.",
        )
    return line


def _may_be_made_again(line: ToolCallRecord, call: ToolCall) -> bool:
    """Whether the call never ran, is idempotent, or may run once more because a person allowed it."""
    if line.effect == "unknown":
        return call.idempotent or line.run_again == "approved"
    return line.effect == "called" and line.approval != "none"
