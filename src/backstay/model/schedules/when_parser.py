"""The grammar of due times, which people write and schedules store.

    2026-12-01 09:00            once
    10 minutes, 2 hours         so long after the start, and so on
    hour                        each full hour
    day 9:00                    every day
    weekday 9:00                Monday to Friday
    monday,thursday 18:30       these days of the week
    month 31 8:00               a day of each month; the last one if the month is shorter

A time zone (`Europe/Zurich`) may follow, except after minutes and hours. Stored due times always have one.
"""

import re
from collections.abc import Callable
from datetime import date

from backstay.errors import InvalidPayload
from backstay.model.schedules.local_time import zone_named
from backstay.model.schedules.recurrence import (
    EVERY_DAY,
    WEEKDAYS,
    WORKDAYS,
    Hourly,
    Interval,
    Monthly,
    Once,
    Weekly,
    When,
)

LONGEST = 400
_EXAMPLES = "Write '2026-12-01 09:00', 'day 9:00', 'weekday 9:00', 'monday,thursday 18:30', 'month 1 8:00', 'hour' or "
_HINT = _EXAMPLES + "'10 minutes', and a time zone such as Europe/Zurich after it if needed."

_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
_TIME = re.compile(r"(\d{1,2}):(\d{2})", re.ASCII)
_COUNT = re.compile(r"[1-9]\d{0,5}", re.ASCII)
_UNITS = {"minute": 1, "minutes": 1, "hour": 60, "hours": 60}
_MOST_MINUTES = 366 * 24 * 60


def parse_when(text: str, zone: str) -> When:
    """The due times that a text describes, in its own time zone or in this one.

    Raises:
        InvalidPayload: The text does not follow the grammar, or names no time zone, date or time that exists.
    """
    if not isinstance(text, str) or len(text) > LONGEST:
        raise InvalidPayload("the time of a schedule is too long or not a text", hint=_HINT)
    words = text.split()
    head = words[0] if words else ""
    if _COUNT.fullmatch(head):
        return _interval(text, words)
    for pattern, size, make in _FORMS:
        if pattern.fullmatch(head) and size <= len(words) <= size + 1:
            named = words[size] if len(words) > size else zone
            zone_named(named)
            return make(text, words, named)
    raise _refused(text)


def _interval(text: str, words: list[str]) -> Interval:
    if len(words) != 2 or words[1] not in _UNITS:
        raise _refused(text)
    minutes = int(words[0]) * _UNITS[words[1]]
    if minutes > _MOST_MINUTES:
        raise InvalidPayload(f"{text!r} is more than a year", hint="Give a shorter interval, or use 'month 1 8:00'.")
    return Interval(minutes)


def _once(text: str, words: list[str], zone: str) -> When:
    try:
        day = date.fromisoformat(words[0])
    except ValueError:
        raise InvalidPayload(f"{words[0]} is not a day of the calendar", hint="Write year-month-day.") from None
    if not 1970 < day.year < 9990:
        raise InvalidPayload(f"the year of {words[0]} is out of range", hint="Write year-month-day.")
    return Once(day, _minute(text, words[1]), zone)


def _weekly(text: str, words: list[str], zone: str) -> When:
    named = {"day": EVERY_DAY, "weekday": WORKDAYS}.get(words[0])
    if named is None:
        names = words[0].split(",")
        if len(set(names)) < len(names) or not set(names) <= set(WEEKDAYS):
            raise _refused(text)
        named = tuple(sorted(map(WEEKDAYS.index, names)))
    return Weekly(named, _minute(text, words[1]), zone)


def _monthly(text: str, words: list[str], zone: str) -> When:
    if not _COUNT.fullmatch(words[1]) or not 1 <= int(words[1]) <= 31:
        raise InvalidPayload(f"{words[1]!r} is not a day of a month", hint="Give a number from 1 to 31.")
    return Monthly(int(words[1]), _minute(text, words[2]), zone)


def _minute(text: str, word: str) -> int:
    found = _TIME.fullmatch(word)
    if found is None or int(found[1]) > 23 or int(found[2]) > 59:
        raise InvalidPayload(f"{word!r} in {text!r} is not a time of day", hint="Write 9:00 or 18:30.")
    return int(found[1]) * 60 + int(found[2])


def _refused(text: str) -> InvalidPayload:
    return InvalidPayload(f"{text!r} is not a time of a schedule", hint=_HINT)


# How a form begins, how many words it has without a time zone, and the function that reads it.
_FORMS: tuple[tuple[re.Pattern[str], int, Callable[[str, list[str], str], When]], ...] = (
    (_DATE, 2, _once),
    (re.compile("hour"), 1, lambda _text, _words, zone: Hourly(zone)),
    (re.compile("month"), 3, _monthly),
    (re.compile("[a-z,]+day"), 2, _weekly),
    (re.compile("day"), 2, _weekly),
)
