"""A schedule: a message that is sent at a moment, or again and again, and what happened at each due time."""

from typing import Literal

import msgspec

from backstay.model.ids import ScheduleId, SessionId, TurnId
from backstay.model.turn import IfBusy

# What happens at a due time at which no process was there to send the message: it is sent late, once; it is left out;
# or a person decides.
IfMissed = Literal["late", "skip", "ask"]
ScheduleState = Literal["active", "paused", "ended"]
ScheduleStep = Literal["created", "fired", "missed", "asked", "failed", "paused", "resumed", "skipped"]


class ScheduleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry in the log of a schedule.

    Attributes:
        number: The number of the entry; grows by one from entry to entry of a schedule.
        at: When it was written, in milliseconds since 1970 (UTC).
        step: "created"; "fired" (the message was sent); "missed" (due times were left out); "asked" (a person is to
            decide about a due time); "failed" (the message could not be sent); "paused"; "resumed"; "skipped" (a person
            left a due time out).
        due: The due time that it is about; None if a person asked for it now.
        missed: How many due times were missed, at most 1,000.
        session: The session that received the message.
        turn: The turn of the message.
        reason: Why it failed.
    """

    number: int
    at: int
    step: ScheduleStep
    due: int | None = None
    missed: int = 0
    session: SessionId | None = None
    turn: TurnId | None = None
    reason: str | None = None

    @property
    def late(self) -> int:
        """How many milliseconds after its due time it was written."""
        return 0 if self.due is None else max(0, self.at - self.due)


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule.

    Attributes:
        id: The id of the schedule.
        owner: Its owner.
        when: Its due times, in the grammar of schedules, with their time zone.
        to: The session, or the spelling of the address, that receives the message.
        agent: The agent that answers; None: the one that was asked last in the session, or else `default`.
        text: The message.
        if_busy: The policy if a turn runs or waits in the session.
        if_missed: The policy for missed due times: "late", "skip" or "ask".
        state: "active", "paused", or "ended" (no due time is left).
        revision: Grows with every change.
        created_at: When it was created, in milliseconds since 1970 (UTC).
        next_due: The next due time, likewise; None: there is none.
        asked_due: The due time that a person is to decide about.
        last: The newest entry in its log.
    """

    id: ScheduleId
    owner: str
    when: str
    to: str
    agent: str | None
    text: str
    if_busy: IfBusy
    if_missed: IfMissed
    state: ScheduleState
    revision: int
    created_at: int
    next_due: int | None
    asked_due: int | None
    last: ScheduleEntry


class DueSchedule(msgspec.Struct, frozen=True):
    """A schedule whose due time has come."""

    id: ScheduleId
    owner: str
    due: int


class DueTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules that are due now, and the next due time of the others.

    Attributes:
        now: The time of the store, in milliseconds since 1970 (UTC).
        due: Some of the schedules that are due, earliest first.
        next: The earliest due time after now; None: there is none.
    """

    now: int
    due: tuple[DueSchedule, ...]
    next: int | None
