"""Commands for schedules: messages that are sent at a moment, or again and again."""

from typing import get_args

from backstay.errors import InvalidPayload
from backstay.model.addresses.address import Address
from backstay.model.codec import check_name
from backstay.model.ids import ScheduleId, SessionId, check_schedule_id
from backstay.model.schedules.schedule import DueTimes, IfMissed, Schedule, ScheduleEntry
from backstay.model.turn import IfBusy
from backstay.store.commands.command import Read, Write
from backstay.store.commands.input_checks import check_kind, check_limit, check_owner, check_target
from backstay.store.verbs.schedules import firings, schedule_rows, schedule_store
from backstay.store.verbs.schedules.schedule_store import NewSchedule


def create_schedule(
    when: str,
    to: Address | SessionId,
    text: str,
    *,
    owner: str,
    zone: str = "UTC",
    agent: str | None = None,
    if_busy: IfBusy = "enqueue",
    if_missed: IfMissed = "late",
    request_id: str | None = None,
) -> Write[Schedule]:
    """Store a schedule: a message that is sent at a moment, or again and again.

    Args:
        when: The due times, such as `2026-12-01 09:00`, `weekday 9:00 Europe/Zurich` or `10 minutes`.
        to: The session or address that receives the message.
        text: The message.
        owner: The owner of the schedule and of the session.
        zone: The time zone of due times that name none.
        agent: The agent that answers; None: the one that was asked last in the session, or else `default`.
        if_busy: The policy if a turn runs or waits in the session at a due time.
        if_missed: The policy for due times at which no process was there to send the message: `late` (it is sent once,
            as soon as possible), `skip`, or `ask` (a person decides).
        request_id: Identifies the request among the schedules of the owner. Repeating it returns the first schedule.

    Returns:
        The schedule.

    Raises:
        NotFound: The owner has no such session.
        SessionEnded: The session was ended.
        SessionExpired: The session has expired.
        UnknownAgent: No process serves or has served the agent.
        RequestMismatch: The request id was used for another schedule.
        QuotaExceeded: The owner has reached its limit of schedules or stored bytes.
        InvalidPayload: An argument is not valid, or the only due time is in the past.
        TooLarge: The message is too long.
    """
    for name, given, known in (("if_busy", if_busy, get_args(IfBusy)), ("if_missed", if_missed, get_args(IfMissed))):
        if given not in known:
            raise InvalidPayload(f"{name} is {given!r}", hint=f"Use one of {', '.join(known)}.")
    check_kind("when", when, str)
    check_kind("zone", zone, str)
    new = NewSchedule(when, zone, check_target(to), text, agent, if_busy, if_missed, request_id)
    return Write(
        name="create_schedule",
        owner=owner,
        read_first=request_id is not None,
        wakes=False,
        verb=lambda tx: schedule_store.create(tx, check_owner(tx, owner), new),
    )


def schedules(*, owner: str) -> Read[tuple[Schedule, ...]]:
    """Read all schedules of an owner, oldest first. Of the ended ones, the newest hundred are kept.

    Args:
        owner: The owner of the schedules.

    Returns:
        The schedules.
    """
    return Read(name="schedules", owner=owner, verb=lambda tx: schedule_rows.of_owner(tx, owner))


def schedule(schedule: ScheduleId, *, owner: str) -> Read[Schedule]:
    """Read a schedule.

    Args:
        schedule: The schedule.
        owner: The owner of the schedule.

    Returns:
        The schedule.

    Raises:
        NotFound: The owner has no such schedule.
    """
    which = check_schedule_id(schedule)
    return Read(name="schedule", owner=owner, verb=lambda tx: schedule_store.read(tx, which, owner))


def schedule_log(schedule: ScheduleId, *, owner: str, limit: int = 20) -> Read[tuple[ScheduleEntry, ...]]:
    """Read the log of a schedule, newest entry first. The newest hundred entries are kept.

    Args:
        schedule: The schedule.
        owner: The owner of the schedule.
        limit: How many entries are read at most.

    Returns:
        The entries.

    Raises:
        NotFound: The owner has no such schedule.
        InvalidPayload: The limit is out of range.
    """
    which, most = check_schedule_id(schedule), check_limit(limit)
    return Read(name="schedule_log", owner=owner, verb=lambda tx: schedule_store.log(tx, which, owner, most))


def pause_schedule(schedule: ScheduleId, *, owner: str) -> Write[Schedule]:
    """Pause a schedule. Pausing it again changes nothing.

    Args:
        schedule: The schedule.
        owner: The owner of the schedule.

    Returns:
        The schedule.

    Raises:
        NotFound: The owner has no such schedule.
        NothingToDo: The schedule has ended.
    """
    which = check_schedule_id(schedule)
    return Write(
        name="pause_schedule",
        owner=owner,
        read_first=True,
        wakes=False,
        verb=lambda tx: schedule_store.pause(tx, which, owner),
    )


def resume_schedule(schedule: ScheduleId, *, owner: str) -> Write[Schedule]:
    """Resume a paused schedule. Due times of a recurrence that passed meanwhile are left out.

    A single moment that passed meanwhile is decided by its policy for missed due times.

    Args:
        schedule: The schedule.
        owner: The owner of the schedule.

    Returns:
        The schedule; the entry in its log counts the due times that were left out.

    Raises:
        NotFound: The owner has no such schedule.
        NothingToDo: The schedule has ended.
    """
    which = check_schedule_id(schedule)
    return Write(
        name="resume_schedule",
        owner=owner,
        read_first=True,
        wakes=False,
        verb=lambda tx: schedule_store.resume(tx, which, owner),
    )


def skip_schedule(schedule: ScheduleId, *, owner: str) -> Write[Schedule]:
    """Leave out the missed due time that a schedule asks about.

    Args:
        schedule: The schedule.
        owner: The owner of the schedule.

    Returns:
        The schedule.

    Raises:
        NotFound: The owner has no such schedule.
        NothingToDo: The schedule asks about no due time.
    """
    which = check_schedule_id(schedule)
    return Write(
        name="skip_schedule",
        owner=owner,
        read_first=True,
        wakes=False,
        verb=lambda tx: schedule_store.skip(tx, which, owner),
    )


def run_schedule(schedule: ScheduleId, *, owner: str, request_id: str | None = None) -> Write[Schedule]:
    """Send the message of a schedule now: for the missed due time that it asks about, or else besides its due times.

    Args:
        schedule: The schedule.
        owner: The owner of the schedule.
        request_id: Identifies the request among those for this schedule. Repeating it sends nothing again.

    Returns:
        The schedule; the entry in its log names the turn.

    Raises:
        NotFound: The owner has no such schedule, or no such session any more.
        SessionBusy: A turn runs or waits in the session, and the schedule's `if_busy` is `reject`.
        SessionEnded: The session was ended.
        SessionExpired: The session has expired.
        UnknownAgent: No process serves or has served the agent.
        QuotaExceeded: The owner has reached its limit of stored bytes.
        InvalidPayload: The request id is not valid.
    """
    which = check_schedule_id(schedule)
    if request_id is not None:
        check_name("the request id", request_id, 128)
    return Write(
        name="run_schedule",
        owner=owner,
        read_first=True,
        verb=lambda tx: firings.run_now(tx, which, owner, request_id),
    )


def delete_schedule(schedule: ScheduleId, *, owner: str) -> Write[Schedule]:
    """Delete a schedule. The turns that it submitted stay.

    Args:
        schedule: The schedule.
        owner: The owner of the schedule.

    Returns:
        The schedule as it was.

    Raises:
        NotFound: The owner has no such schedule.
    """
    which = check_schedule_id(schedule)
    return Write(
        name="delete_schedule",
        owner=owner,
        read_first=True,
        wakes=False,
        verb=lambda tx: schedule_store.delete(tx, which, owner),
    )


def due_schedules(*, limit: int = 100) -> Read[DueTimes]:
    """Read which schedules of all owners are due, and when the next one is.

    Args:
        limit: How many due schedules are read at most.

    Returns:
        The schedules and the next due time.

    Raises:
        InvalidPayload: The limit is out of range.
    """
    most = check_limit(limit)
    return Read(name="due_schedules", owner=None, verb=lambda tx: firings.due_times(tx, most))


def fire_schedule(schedule: ScheduleId, due: int, *, owner: str) -> Write[Schedule | None]:
    """Decide about a due time that has come, and send the message, in one transaction.

    The turn has the request id `schedule/due`. Whichever processes do this, and however often, there is one turn.

    Args:
        schedule: The schedule.
        due: The due time.
        owner: The owner of the schedule.

    Returns:
        The schedule; None if the due time has not come, or was decided before.

    Raises:
        NotFound: The session was deleted.
        Conflict: The session does not accept the message.
        Rejected: The message is not valid any more, or no process has served its agent.
    """
    which = check_schedule_id(schedule)
    return Write(
        name="fire_schedule", owner=owner, read_first=True, verb=lambda tx: firings.fire(tx, which, owner, due)
    )


def fail_schedule(schedule: ScheduleId, due: int, *, owner: str, reason: str) -> Write[Schedule | None]:
    """Record that a message could not be sent at a due time, so that it is not tried again.

    Args:
        schedule: The schedule.
        due: The due time.
        owner: The owner of the schedule.
        reason: The error.

    Returns:
        The schedule; None if the due time was decided before.

    Raises:
        InvalidPayload: The due times cannot be computed here: the machine does not know the time zone.
    """
    which = check_schedule_id(schedule)
    return Write(
        name="fail_schedule",
        owner=owner,
        read_first=True,
        verb=lambda tx: firings.fail(tx, which, owner, due, reason),
    )


def stop_schedule(schedule: ScheduleId, due: int, *, owner: str, reason: str) -> Write[Schedule | None]:
    """Pause a schedule whose due times cannot be computed.

    Args:
        schedule: The schedule.
        due: The due time that has come.
        owner: The owner of the schedule.
        reason: The error.

    Returns:
        The schedule; None if the due time was decided before.
    """
    which = check_schedule_id(schedule)
    return Write(
        name="stop_schedule",
        owner=owner,
        read_first=True,
        wakes=False,
        verb=lambda tx: firings.stop(tx, which, owner, due, reason),
    )
