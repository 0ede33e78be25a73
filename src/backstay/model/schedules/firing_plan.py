"""The decision of a schedule about the due times that have passed."""

import msgspec

from backstay.model.schedules.recurrence import When
from backstay.model.schedules.schedule import IfMissed

# A firing within this time after its due time is on time: a process may be busy, or be restarted.
ON_TIME = 60_000
# Missed due times are counted up to this number.
MOST_COUNTED = 1_000


class FiringPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The decision about the due times that have passed.

    Attributes:
        fire: The due time for which the message is sent.
        ask: The due time about which a person decides.
        missed: How many due times are left out.
        first_missed: The first of them.
        next_due: The next due time, which lies in the future.
    """

    fire: int | None = None
    ask: int | None = None
    missed: int = 0
    first_missed: int | None = None
    next_due: int | None


def plan_firing(when: When, since: int, due: int, now: int, if_missed: IfMissed) -> FiringPlan:
    """Decide about all due times from `due` until now. Only the last of them is sent or asked about.

    Args:
        when: The due times.
        since: When the schedule was created.
        due: The first due time that has not been decided, which is not later than now.
        now: The present moment.
        if_missed: The policy for missed due times.
    """
    last = max(due, when.until(now, since) or due)
    next_due = when.after(now, since)
    earlier = _count_before(when, since, due, last)
    first = due if earlier else None
    if if_missed == "late" or now - last <= ON_TIME:
        return FiringPlan(fire=last, missed=earlier, first_missed=first, next_due=next_due)
    if if_missed == "ask":
        return FiringPlan(ask=last, missed=earlier, first_missed=first, next_due=next_due)
    return FiringPlan(missed=min(earlier + 1, MOST_COUNTED), first_missed=due, next_due=next_due)


def count_due(when: When, since: int, due: int, now: int) -> int:
    """The number of due times from `due` until now, at most `MOST_COUNTED`."""
    if due > now:
        return 0
    last = max(due, when.until(now, since) or due)
    return min(_count_before(when, since, due, last) + 1, MOST_COUNTED)


def _count_before(when: When, since: int, due: int, last: int) -> int:
    """The number of due times from `due` until the last one, without it; at most `MOST_COUNTED`."""
    passed, moment = 0, due
    while moment < last and passed < MOST_COUNTED:
        passed += 1
        moment = when.after(moment, since) or last
    return passed
