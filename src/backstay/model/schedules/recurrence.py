"""The due times of a schedule: one moment, or a recurrence.

Each kind has its spelling (`str`), and two functions that are each other's counterpart: `after` is the first due time
after a moment, `until` the last one not after it. All moments are milliseconds since 1970 (UTC).
"""

from collections.abc import Iterable
from datetime import date, datetime, timedelta

import msgspec

from backstay.model.schedules.local_time import LAST_MOMENT, local_time, moment_at, zone_named

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
WORKDAYS = (0, 1, 2, 3, 4)
EVERY_DAY = (0, 1, 2, 3, 4, 5, 6)

_MINUTE = 60_000
_HOUR = 60 * _MINUTE


class Once(msgspec.Struct, frozen=True):
    """One moment: a date and a time, in a time zone."""

    date: date
    minute: int
    zone: str

    def __str__(self) -> str:
        return f"{self.date.isoformat()} {_time(self.minute)} {self.zone}"

    def after(self, moment: int, since: int) -> int | None:
        """The moment, if it is later."""
        due = _on(self.date, self.minute, self.zone)
        return due if max(moment, since) < due <= LAST_MOMENT else None

    def until(self, moment: int, since: int) -> int | None:
        """The moment, if it is not later."""
        due = _on(self.date, self.minute, self.zone)
        return due if since < due <= min(moment, LAST_MOMENT) else None


class Interval(msgspec.Struct, frozen=True):
    """A number of minutes after the start, and so on. Changes of the clocks do not matter."""

    minutes: int

    def __str__(self) -> str:
        count, unit = (self.minutes // 60, "hour") if self.minutes % 60 == 0 else (self.minutes, "minute")
        return f"{count} {unit}" + ("" if count == 1 else "s")

    def after(self, moment: int, since: int) -> int | None:
        """The next multiple of the interval."""
        return _within(since + (max(moment - since, 0) // self._length + 1) * self._length)

    def until(self, moment: int, since: int) -> int | None:
        """The last multiple of the interval."""
        count = (min(moment, LAST_MOMENT) - since) // self._length
        return since + count * self._length if count > 0 else None

    @property
    def _length(self) -> int:
        return self.minutes * _MINUTE


class Hourly(msgspec.Struct, frozen=True):
    """Each full hour of the clock; an hour that a change of the clocks repeats is due twice."""

    zone: str

    def __str__(self) -> str:
        return f"hour {self.zone}"

    def after(self, moment: int, since: int) -> int | None:
        """The next full hour."""
        start = max(moment, since) // _MINUTE * _MINUTE
        return _within(self._full(range(start + _MINUTE, start + 3 * _HOUR, _MINUTE))) if start < LAST_MOMENT else None

    def until(self, moment: int, since: int) -> int | None:
        """The last full hour."""
        start = min(moment, LAST_MOMENT) // _MINUTE * _MINUTE
        due = self._full(range(start, start - 3 * _HOUR, -_MINUTE))
        return due if due is not None and due > since else None

    def _full(self, moments: Iterable[int]) -> int | None:
        zone = zone_named(self.zone)
        return next((moment for moment in moments if local_time(moment, zone).minute == 0), None)


class Weekly(msgspec.Struct, frozen=True):
    """Some days of the week (0 is Monday), at a time in a time zone."""

    days: tuple[int, ...]
    minute: int
    zone: str

    def __str__(self) -> str:
        named = {EVERY_DAY: "day", WORKDAYS: "weekday"}.get(self.days)
        return f"{named or ','.join(WEEKDAYS[day] for day in self.days)} {_time(self.minute)} {self.zone}"

    def after(self, moment: int, since: int) -> int | None:
        """The next of these days, at the time."""
        start = max(moment, since)
        # From the day before: where a whole day is left out, its time is the first moment of the next day.
        return _first_after(start, (self._due(start, ahead) for ahead in range(-2, 16)))

    def until(self, moment: int, since: int) -> int | None:
        """The last of these days, at the time."""
        return _last_until(moment, since, (self._due(min(moment, LAST_MOMENT), -back) for back in range(-2, 16)))

    def _due(self, moment: int, ahead: int) -> int | None:
        day = local_time(moment, zone_named(self.zone)).date() + timedelta(days=ahead)
        return _on(day, self.minute, self.zone) if day.weekday() in self.days else None


class Monthly(msgspec.Struct, frozen=True):
    """A day of each month, at a time in a time zone. In a month that is too short it is the last day."""

    day: int
    minute: int
    zone: str

    def __str__(self) -> str:
        return f"month {self.day} {_time(self.minute)} {self.zone}"

    def after(self, moment: int, since: int) -> int | None:
        """The day of this month or the next, at the time."""
        start = max(moment, since)
        return _first_after(start, (self._due(start, ahead) for ahead in range(-1, 4)))

    def until(self, moment: int, since: int) -> int | None:
        """The day of this month or the last, at the time."""
        return _last_until(moment, since, (self._due(min(moment, LAST_MOMENT), -back) for back in range(-1, 4)))

    def _due(self, moment: int, ahead: int) -> int:
        here = local_time(moment, zone_named(self.zone))
        month = here.year * 12 + here.month - 1 + ahead
        first, following = _first_of(month), _first_of(month + 1)
        day = min(first + timedelta(days=self.day - 1), following - timedelta(days=1))
        return _on(day, self.minute, self.zone)


When = Once | Interval | Hourly | Weekly | Monthly


def _first_of(month: int) -> date:
    """The first day of a month; months are counted from the year 0."""
    return date(month // 12, month % 12 + 1, 1)


def _time(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def _on(day: date, minute: int, zone: str) -> int:
    local = datetime(day.year, day.month, day.day, minute // 60, minute % 60)  # noqa: DTZ001  # the zone comes next
    return moment_at(local, zone_named(zone))


def _within(due: int | None) -> int | None:
    return None if due is None or due > LAST_MOMENT else due


def _first_after(start: int, dues: Iterable[int | None]) -> int | None:
    """The first of these due times after a moment. They are in order."""
    if start >= LAST_MOMENT:
        return None
    return _within(next((due for due in dues if due is not None and due > start), None))


def _last_until(moment: int, since: int, dues: Iterable[int | None]) -> int | None:
    """The last of these due times that is not after a moment. They are in reverse order."""
    end = min(moment, LAST_MOMENT)
    due = next((due for due in dues if due is not None and due <= end), None)
    return due if due is not None and due > since else None
