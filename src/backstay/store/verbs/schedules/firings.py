"""Firings: the message of a schedule is sent for a due time, in the transaction that moves the schedule on.

A crash leaves both or neither, and the request id is the schedule with the due time: so each due time is sent once,
whichever process fires it. The session row is locked before the schedule is written, as in every other write.
"""

from backstay.model.addresses.address import Address
from backstay.model.content import parts_of
from backstay.model.event import ScheduleFired, ScheduleMissed
from backstay.model.ids import ScheduleId
from backstay.model.schedules.firing_plan import plan_firing
from backstay.model.schedules.schedule import DueSchedule, DueTimes, Schedule
from backstay.model.turn import Accepted
from backstay.store.engine import Transaction
from backstay.store.rows import Rows, value
from backstay.store.session_row import lock_if_there, lock_session
from backstay.store.verbs.schedules import schedule_rows
from backstay.store.verbs.schedules.schedule_rows import SCHEDULE, ScheduleChange, ScheduleRow
from backstay.store.verbs.session_changes import ADDRESS
from backstay.store.verbs.turns import event_log, submission
from backstay.store.verbs.turns.submission import TurnRequest

_DUE = Rows("due_schedules", DueSchedule)


def due_times(tx: Transaction, limit: int) -> DueTimes:
    """The schedules that are due now, and the next due time of the others."""
    due = tuple(_DUE.all(tx, now=tx.now, limit=limit))
    return DueTimes(now=tx.now, due=due, next=value(tx, "next_due", now=tx.now))


def fire(tx: Transaction, schedule: ScheduleId, owner: str, due: int) -> Schedule | None:
    """Decide about a due time and send the message if it is to be sent. None: another process has decided."""
    row = _still_due(tx, schedule, owner, due)
    if row is None:
        return None
    plan = plan_firing(row.when, row.created_at, due, tx.now, row.if_missed)
    with ScheduleChange(tx, row) as change:
        if plan.missed:
            change.note("missed", due=plan.first_missed, missed=plan.missed)
        if plan.ask is not None:
            _ask(tx, change, plan.ask, plan.missed)
        elif plan.fire is not None:
            _send(tx, change, f"{row.id}/{plan.fire}", plan.fire, plan.missed)
        else:
            _append_to_session(tx, row, ScheduleMissed(row.id, plan.first_missed or due, "skipped", plan.missed))
        row.next_due = plan.next_due
    return change.value()


def fail(tx: Transaction, schedule: ScheduleId, owner: str, due: int, reason: str) -> Schedule | None:
    """Record that the message could not be sent for a due time, and move on. None: another process has decided."""
    row = _still_due(tx, schedule, owner, due)
    if row is None:
        return None
    plan = plan_firing(row.when, row.created_at, due, tx.now, "late")
    with ScheduleChange(tx, row) as change:
        if plan.missed:
            change.note("missed", due=plan.first_missed, missed=plan.missed)
        change.note("failed", due=plan.fire, reason=reason)
        _append_to_session(tx, row, ScheduleMissed(row.id, plan.fire or due, "failed", plan.missed + 1, reason))
        row.next_due = plan.next_due
    return change.value()


def stop(tx: Transaction, schedule: ScheduleId, owner: str, due: int, reason: str) -> Schedule | None:
    """Pause a schedule whose due times this machine cannot compute. None: another process has decided."""
    row = _still_due(tx, schedule, owner, due)
    if row is None:
        return None
    with ScheduleChange(tx, row) as change:
        change.note("failed", due=due, reason=reason)
        change.note("paused", reason=reason)
        row.state = "paused"
    return change.value()


def run_now(tx: Transaction, schedule: ScheduleId, owner: str, request_id: str | None) -> Schedule:
    """Send the message now: for the due time that a person was asked about, or else besides the due times."""
    row = schedule_rows.find(tx, schedule, owner)
    with ScheduleChange(tx, row) as change:
        if row.asked_due is not None:
            asked, row.asked_due = row.asked_due, None
            _send(tx, change, f"{row.id}/{asked}", asked, 0)
        else:
            name = request_id or tx.ids.turn()
            _send(tx, change, f"{row.id}/now/{name}", None, 0)
    return change.value()


def _still_due(tx: Transaction, schedule: ScheduleId, owner: str, due: int) -> ScheduleRow | None:
    row = SCHEDULE.one(tx, schedule=schedule, owner=owner)
    if row is None or row.state != "active" or row.next_due != due or due > tx.now:
        return None
    return row


def _ask(tx: Transaction, change: ScheduleChange, due: int, missed: int) -> None:
    """Ask a person about a due time. An earlier one that is still undecided is left out."""
    row = change.row
    if row.asked_due is not None:
        change.note("missed", due=row.asked_due, missed=1)
    row.asked_due = due
    change.note("asked", due=due)
    _append_to_session(tx, row, ScheduleMissed(row.id, due, "asked", missed + 1))


def _send(tx: Transaction, change: ScheduleChange, request_id: str, due: int | None, missed: int) -> None:
    row = change.row
    request = TurnRequest(
        to=row.to, owner=row.owner, id=request_id, agent=row.agent, if_busy=row.if_busy, allow_unserved=False
    )
    accepted = submission.submit(tx, request, parts_of(row.message))
    if accepted.repeated:
        if due is None:
            return  # The request was repeated with the same id.
    else:
        late = 0 if due is None else max(0, tx.now - due)
        _append_fired(tx, accepted, ScheduleFired(row.id, due, late, missed))
    change.note("fired", due=due, session=accepted.session.id, turn=accepted.turn.id)


def _append_fired(tx: Transaction, accepted: Accepted, fired: ScheduleFired) -> None:
    with lock_session(tx, accepted.session.id, accepted.session.owner) as session_row:
        event_log.append_event(tx, session_row, fired, accepted.turn.id)


def _append_to_session(tx: Transaction, row: ScheduleRow, missed: ScheduleMissed) -> None:
    """Append an event to the session of the schedule, if there is an open one."""
    session = row.to
    if isinstance(session, Address):
        found = ADDRESS.one(tx, owner=row.owner, key=bytes.fromhex(session.key))
        if found is None:
            return
        session = found.session
    scope = lock_if_there(tx, session, row.owner)
    if scope is None or scope.row.state_at(tx.now) != "open":
        return
    with scope as session_row:
        session_row.revision += 1
        event_log.append_event(tx, session_row, missed)
