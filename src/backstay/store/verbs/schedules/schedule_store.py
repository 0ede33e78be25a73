"""Schedules: created, listed, paused, resumed and deleted by their owner."""

from typing import NamedTuple

import msgspec

from backstay.errors import InvalidPayload, NothingToDo, QuotaExceeded, RequestMismatch
from backstay.model.addresses.address import Address
from backstay.model.codec import check_name, content_hash
from backstay.model.ids import ScheduleId, SessionId
from backstay.model.schedules.firing_plan import count_due
from backstay.model.schedules.recurrence import Once
from backstay.model.schedules.schedule import IfMissed, Schedule, ScheduleEntry
from backstay.model.schedules.when_parser import parse_when
from backstay.model.turn import IfBusy
from backstay.store.engine import Transaction
from backstay.store.rows import value, values
from backstay.store.session_row import find as find_session
from backstay.store.verbs import agent_registry, owner_totals
from backstay.store.verbs.schedules import schedule_rows
from backstay.store.verbs.schedules.schedule_rows import LOG, OF_REQUEST, ScheduleChange, add_entry

# So many ended schedules of an owner are kept, so that people see what became of them.
KEPT_ENDED = 100


class NewSchedule(NamedTuple):
    """The arguments of a new schedule."""

    when: str
    zone: str
    to: Address | SessionId
    text: str
    agent: str | None
    if_busy: IfBusy
    if_missed: IfMissed
    request_id: str | None


def create(tx: Transaction, owner: str, new: NewSchedule) -> Schedule:
    """Store a schedule. Repeating its request id returns the first one."""
    when = parse_when(new.when, new.zone)
    check_name("the text of a schedule", new.text, tx.limits.schedule_bytes)
    if new.agent is not None:
        agent_registry.check_agent_name(tx, new.agent)
    target = (new.to.on(tx.host).spelling) if isinstance(new.to, Address) else new.to
    digest = _digest(tx, new, str(when), target)
    first = None if digest is None else OF_REQUEST.one(tx, owner=owner, request_id=new.request_id)
    if first is not None:
        if first.request_hash != digest:
            raise RequestMismatch(f"request id {new.request_id!r} was used for another schedule")
        tx.commit_unchanged()
        return schedule_rows.shown(tx, first)
    if not isinstance(new.to, Address):
        find_session(tx, new.to, owner).require_open(tx.now)
    if new.agent is not None:
        agent_registry.check_served(tx, new.agent)
    _require_room(tx, owner)
    due = when.after(tx.now, tx.now)
    if due is None:
        raise InvalidPayload(f"{new.when!r} is in the past", hint="Give a later time.")
    schedule = tx.ids.schedule()
    tx.run(
        "add_schedule",
        schedule=schedule,
        owner=owner,
        timing=str(when),
        target=target,
        agent=new.agent,
        message=new.text,
        if_busy=new.if_busy,
        if_missed=new.if_missed,
        next_due=due,
        request_id=new.request_id,
        request_hash=digest,
        now=tx.now,
    )
    add_entry(tx, schedule, ScheduleEntry(number=1, at=tx.now, step="created"))
    return read(tx, schedule, owner)


def _digest(tx: Transaction, new: NewSchedule, when: str, target: str) -> bytes | None:
    if new.request_id is None:
        return None
    check_name("the request id", new.request_id, tx.limits.name_bytes)
    return content_hash("schedule", when, target, new.agent, new.text, new.if_busy, new.if_missed)


def _require_room(tx: Transaction, owner: str) -> None:
    """Raise `QuotaExceeded` if the owner may have no more schedules. Old ended ones are removed."""
    owner_totals.require_room(tx, owner)
    most = tx.limits.schedules_per_owner
    if (value(tx, "unfinished_schedules", owner=owner) or 0) >= most:
        raise QuotaExceeded(f"{owner} already has {most:,} schedules", hint="Delete schedules that are not needed.")
    for old in values(tx, "old_schedules", owner=owner, kept=KEPT_ENDED):
        delete(tx, old, owner)


def read(tx: Transaction, schedule: ScheduleId, owner: str) -> Schedule:
    """The schedule."""
    return schedule_rows.shown(tx, schedule_rows.find(tx, schedule, owner))


def log(tx: Transaction, schedule: ScheduleId, owner: str, limit: int) -> tuple[ScheduleEntry, ...]:
    """The newest entries in the log of a schedule, newest first."""
    schedule_rows.find(tx, schedule, owner)
    return tuple(LOG.all(tx, schedule=schedule, limit=limit))


def pause(tx: Transaction, schedule: ScheduleId, owner: str) -> Schedule:
    """Pause a schedule. Pausing it again changes nothing."""
    with _change(tx, schedule, owner) as change:
        if change.row.state == "ended":
            raise NothingToDo(f"{schedule} has ended", hint="Create another schedule.")
        if change.row.state == "active":
            change.row.state = "paused"
            change.note("paused")
    return change.value()


def resume(tx: Transaction, schedule: ScheduleId, owner: str) -> Schedule:
    """Resume a paused schedule. Due times of a recurrence that passed meanwhile are left out, and counted."""
    with _change(tx, schedule, owner) as change:
        row = change.row
        if row.state == "ended":
            raise NothingToDo(f"{schedule} has ended", hint="Create another schedule.")
        if row.state == "paused":
            when, missed = row.when, 0
            # A single moment that passed meanwhile is decided by the policy for missed due times.
            if row.next_due is not None and row.next_due <= tx.now and not isinstance(when, Once):
                missed = count_due(when, row.created_at, row.next_due, tx.now)
                row.next_due = when.after(tx.now, row.created_at)
            row.state = "active"
            change.note("resumed", missed=missed)
    return change.value()


def skip(tx: Transaction, schedule: ScheduleId, owner: str) -> Schedule:
    """Leave out the due time that a person was asked about."""
    with _change(tx, schedule, owner) as change:
        if change.row.asked_due is None:
            raise NothingToDo(f"{schedule} asks about no due time", hint="Pause it to leave out later ones.")
        change.note("skipped", due=change.row.asked_due)
        change.row.asked_due = None
    return change.value()


def delete(tx: Transaction, schedule: ScheduleId, owner: str) -> Schedule:
    """Delete a schedule and its log. The turns that it submitted stay."""
    row = schedule_rows.find(tx, schedule, owner)
    deleted = schedule_rows.shown(tx, row)
    # The row first: a firing that has changed it is done by then, and its entries are removed too.
    tx.run_guarded("delete_schedule", schedule=row.id, found=row.revision)
    tx.run("drop_schedule_entries", schedule=row.id, until=(1 << 62))
    return msgspec.structs.replace(deleted, state="ended", next_due=None, asked_due=None)


def _change(tx: Transaction, schedule: ScheduleId, owner: str) -> ScheduleChange:
    return ScheduleChange(tx, schedule_rows.find(tx, schedule, owner))
