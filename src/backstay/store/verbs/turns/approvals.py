"""Approvals: a person decides on a tool call that needs approval, or that may have run."""

from backstay.errors import Conflict, NothingToDo
from backstay.model.event import ApprovalDecided
from backstay.model.ids import TurnId
from backstay.model.turn import ToolCallRecord
from backstay.store.engine import Transaction
from backstay.store.verbs.turns import event_log, resumption
from backstay.store.verbs.turns.turn_queue import lock_session_of
from backstay.store.verbs.turns.turn_row import CALL, LAST_OF_ROOT, LEDGER, TurnRow, find_row


def decide(
    tx: Transaction, turn: TurnId, call: str, owner: str, *, approved: bool, arguments_hash: str | None
) -> ToolCallRecord:
    """Approve or deny a tool call that needs approval. The decision is bound to the arguments that the person saw."""
    with lock_session_of(tx, turn, owner) as session_row:
        made_in, wanted = find_row(tx, turn, owner), "approved" if approved else "denied"
        repeated = _decided_before(tx, made_in, call, wanted)
        if repeated is not None and arguments_hash in (None, repeated.arguments_hash):
            return repeated
        record = _call_to_decide(tx, made_in, call, arguments_hash)
        if record.approval != "asked" or record.effect != "called":
            raise NothingToDo(f"tool call {call!r} of {turn} is not waiting for approval")
        session_row.require_open(tx.now)
        # An interrupted turn runs no tool; the turn that continues it does, and stores when.
        starts = approved and made_in.state == "running"
        if made_in.state != "running":
            resumption.allow_continuation(tx, session_row, made_in)
        tx.run("set_approval", turn=turn, call=call, approval=wanted, started_at=tx.now if starts else None)
        session_row.revision += 1
        event_log.append_event(tx, session_row, ApprovalDecided(call, approved), turn)
    return _call_to_decide(tx, made_in, call, arguments_hash)


def allow_run_again(
    tx: Transaction, turn: TurnId, call: str, owner: str, *, arguments_hash: str | None
) -> ToolCallRecord:
    """Allow one more run of a call that may have run, under a new key and with the arguments that were shown."""
    with lock_session_of(tx, turn, owner) as session_row:
        made_in = find_row(tx, turn, owner)
        made = _call_to_decide(tx, made_in, call, arguments_hash)
        if made.run_again != "none":
            return made
        if made.effect != "unknown":
            raise NothingToDo(f"the result of tool call {call!r} of {turn} is known")
        session_row.require_open(tx.now)
        last = LAST_OF_ROOT.one(tx, session=session_row.id, root=made.root)
        if last is None or last.outcome not in (None, "interrupted"):
            raise NothingToDo(f"the turn that continued {turn} has ended, and its calls with it")
        tx.run("release_turn", turn=last.turn)
        tx.run("allow_run_again", turn=turn, call=call)
        session_row.revision += 1
        event_log.append_event(tx, session_row, ApprovalDecided(call, True, run_again=True), turn)
    return _call_to_decide(tx, made_in, call, arguments_hash)


def _decided_before(tx: Transaction, made_in: TurnRow, call: str, wanted: str) -> ToolCallRecord | None:
    """The call, if the same was decided before: two people may decide, or one whose first answer was lost."""
    found = CALL.one(tx, turn=made_in.id, call=call)
    if found is None:
        # The turn that continues an interrupted one makes its calls.
        found = next((made for made in LEDGER.all(tx, root=made_in.root) if made.call == call), None)
    return found if found is not None and found.approval == wanted else None


def _call_to_decide(tx: Transaction, made_in: TurnRow, call: str, arguments_hash: str | None) -> ToolCallRecord:
    """The call that a person decides on, if it can still be made and has the arguments that were shown."""
    if made_in.outcome not in (None, "interrupted"):
        raise NothingToDo(f"{made_in.id} has ended, and its calls with it")
    found = CALL.one(tx, turn=made_in.id, call=call)
    if found is None:
        raise NothingToDo(f"{made_in.id} made no tool call {call!r}")
    if arguments_hash is not None and arguments_hash != found.arguments_hash:
        raise Conflict(
            f"tool call {call!r} does not have the arguments that were shown", hint="Read the call again, then decide."
        )
    return found
