"""The due times of schedules: their spelling, their order, and changes of the clocks."""

from datetime import date, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from backstay.errors import InvalidPayload
from backstay.model.schedules.firing_plan import MOST_COUNTED, ON_TIME, count_due, plan_firing
from backstay.model.schedules.local_time import LAST_MOMENT
from backstay.model.schedules.recurrence import Once, When
from backstay.model.schedules.schedule import IfMissed
from backstay.model.schedules.when_parser import parse_when

ZURICH = "Europe/Zurich"
# Some change their clocks by half an hour, by a whole day, at midnight, or in the other half of the year.
ZONES = (
    ZURICH,
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "America/Havana",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Africa/Casablanca",
    "UTC",
)
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def at(text: str, zone: str = "UTC") -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def shown(moment: int | None, zone: str) -> str | None:
    if moment is None:
        return None
    return datetime.fromtimestamp(moment / 1000, ZoneInfo(zone)).isoformat(sep=" ", timespec="minutes")


def dues(text: str, start: str, count: int, zone: str = ZURICH) -> list[str | None]:
    """The first due times of a schedule that is created at this local time."""
    when, since = parse_when(text, zone), at(start, zone)
    found: list[str | None] = []
    moment: int | None = since
    while moment is not None and len(found) < count:
        moment = when.after(moment, since)
        found.append(shown(moment, zone))
    return found


times = st.builds("{}:{:02}".format, st.integers(0, 23), st.integers(0, 59))
zones = st.sampled_from(ZONES)
days = st.sets(st.sampled_from(["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]))
recurrences = st.one_of(
    st.builds("{} minutes".format, st.integers(1, 3_000)),
    st.builds("{} hours".format, st.integers(1, 200)),
    st.builds("hour {}".format, zones),
    st.builds("day {} {}".format, times, zones),
    st.builds("weekday {} {}".format, times, zones),
    st.builds(lambda names, time, zone: f"{','.join(sorted(names))} {time} {zone}", days.filter(bool), times, zones),
    st.builds("month {} {} {}".format, st.integers(1, 31), times, zones),
)
moments = st.integers(at("1990-01-01"), at("2090-01-01"))
texts = st.one_of(
    recurrences,
    st.builds("{} {} {}".format, st.dates(date(1980, 1, 1), date(2090, 1, 1)), times, zones),
)


# --- the grammar ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("2026-12-01 9:00", "2026-12-01 09:00 Europe/Zurich"),
        ("2026-12-01 09:00 UTC", "2026-12-01 09:00 UTC"),
        ("hour", "hour Europe/Zurich"),
        ("day 9:00", "day 09:00 Europe/Zurich"),
        ("  weekday   9:00  America/New_York ", "weekday 09:00 America/New_York"),
        ("thursday,monday 18:30", "monday,thursday 18:30 Europe/Zurich"),
        ("sunday 0:05", "sunday 00:05 Europe/Zurich"),
        ("month 1 8:00", "month 1 08:00 Europe/Zurich"),
        ("10 minutes", "10 minutes"),
        ("1 minute", "1 minute"),
        ("120 minutes", "2 hours"),
        ("1 hours", "1 hour"),
        ("monday,tuesday,wednesday,thursday,friday 9:00", "weekday 09:00 Europe/Zurich"),
    ],
)
def test_a_schedule_has_one_spelling_with_its_zone(text: str, spelling: str) -> None:
    assert str(parse_when(text, ZURICH)) == spelling


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not a time of a schedule"),
        ("tomorrow 9:00", "is not a time of a schedule"),
        ("Day 9:00", "is not a time of a schedule"),
        ("day", "is not a time of a schedule"),
        ("day 24:00", "is not a time of day"),
        ("day 9", "is not a time of day"),
        ("day 9:5", "is not a time of day"),
        ("day 9:00 UTC please", "is not a time of a schedule"),
        ("monday,monday 9:00", "is not a time of a schedule"),
        ("monday, 9:00", "is not a time of a schedule"),
        ("monday,day 9:00", "is not a time of a schedule"),
        ("month 0 9:00", "is not a day of a month"),
        ("month 32 9:00", "is not a day of a month"),
        ("0 minutes", "is not a time of a schedule"),
        ("10 seconds", "is not a time of a schedule"),
        ("10 minutes UTC", "is not a time of a schedule"),
        ("10000 hours", "is more than a year"),
        ("2026-02-30 9:00", "is not a day of the calendar"),
        ("0001-01-01 9:00", "is out of range"),
        ("9999-12-31 9:00", "is out of range"),
        ("2026-12-01", "is not a time of a schedule"),
        ("day 9:00 Europe/Atlantis", "is not a time zone"),
        ("day 9:00 ../../etc/passwd", "is not a time zone"),
        ("day 9:00 Europe", "is not a time zone"),
        ("day ٩:00", "is not a time of day"),
        ("day 9:00 " + "A" * 500, "is too long"),
    ],
)
def test_anything_else_is_refused_with_its_problem(text: str, problem: str) -> None:
    with pytest.raises(InvalidPayload, match=problem) as refused:
        parse_when(text, ZURICH)
    assert refused.value.hint


@given(texts)
def test_a_spelling_is_parsed_to_the_same_schedule(text: str) -> None:
    when = parse_when(text, "UTC")
    assert parse_when(str(when), ZURICH) == when
    assert str(parse_when(str(when), ZURICH)) == str(when)


# --- changes of the clocks and the calendar ---------------------------------------------------------------------------


def test_a_time_that_the_clocks_leave_out_is_due_at_their_change() -> None:
    assert dues("day 2:30", "2026-03-28 00:00", 3) == [
        "2026-03-28 02:30+01:00",
        "2026-03-29 03:00+02:00",
        "2026-03-30 02:30+02:00",
    ]


def test_a_time_that_the_clocks_show_twice_is_due_the_first_time_only() -> None:
    assert dues("day 2:30", "2026-10-24 12:00", 3) == [
        "2026-10-25 02:30+02:00",
        "2026-10-26 02:30+01:00",
        "2026-10-27 02:30+01:00",
    ]


def test_a_day_that_the_calendar_leaves_out_is_due_once_with_the_next() -> None:
    # Samoa had no 30 December 2011.
    assert dues("day 0:00", "2011-12-29 12:00", 2, "Pacific/Apia") == [
        "2011-12-31 00:00+14:00",
        "2012-01-01 00:00+14:00",
    ]
    assert dues("day 9:00", "2011-12-29 12:00", 2, "Pacific/Apia") == [
        "2011-12-31 00:00+14:00",
        "2011-12-31 09:00+14:00",
    ]


def test_a_midnight_that_the_clocks_leave_out_is_due_at_one() -> None:
    assert dues("sunday 0:00", "2026-03-07 12:00", 1, "America/Havana") == ["2026-03-08 01:00-04:00"]


def test_full_hours_are_those_of_the_clock() -> None:
    assert dues("hour", "2026-10-25 01:30", 3) == [
        "2026-10-25 02:00+02:00",
        "2026-10-25 02:00+01:00",
        "2026-10-25 03:00+01:00",
    ]
    assert dues("hour", "2026-03-29 01:30", 2) == ["2026-03-29 03:00+02:00", "2026-03-29 04:00+02:00"]
    assert dues("hour", "2026-01-01 01:31", 1, "Asia/Kathmandu") == ["2026-01-01 02:00+05:45"]


def test_a_day_that_a_month_lacks_is_its_last_day() -> None:
    assert dues("month 31 8:00", "2028-01-15 00:00", 4, "UTC") == [
        "2028-01-31 08:00+00:00",
        "2028-02-29 08:00+00:00",
        "2028-03-31 08:00+00:00",
        "2028-04-30 08:00+00:00",
    ]
    assert dues("month 29 8:00", "2027-02-01 00:00", 1, "UTC") == ["2027-02-28 08:00+00:00"]


def test_a_single_moment_is_due_once() -> None:
    assert dues("2028-02-29 8:00", "2028-01-15 00:00", 2, "UTC") == ["2028-02-29 08:00+00:00", None]
    assert dues("2026-03-29 2:30", "2026-01-15 00:00", 2) == ["2026-03-29 03:00+02:00", None]


def test_an_interval_counts_from_the_start_and_ignores_the_clocks() -> None:
    assert dues("90 minutes", "2026-03-29 00:50", 2) == ["2026-03-29 03:20+02:00", "2026-03-29 04:50+02:00"]


@given(recurrences, moments)
@example("day 9:00 Pacific/Apia", at("2011-12-29 12:00", "Pacific/Apia"))
def test_due_times_strictly_increase(text: str, since: int) -> None:
    when = parse_when(text, "UTC")
    found = [since]
    for _ in range(40):
        following = when.after(found[-1], since)
        assert following is not None
        found.append(following)
    assert all(earlier < later for earlier, later in pairwise(found))


@given(texts, moments, st.integers(0, 400 * DAY))
@example("day 9:00 Pacific/Apia", at("2011-12-29 12:00", "Pacific/Apia"), 2 * DAY)
def test_no_due_time_lies_between_the_last_and_the_next(text: str, since: int, later: int) -> None:
    when, now = parse_when(text, "UTC"), since + later
    last, following = when.until(now, since), when.after(now, since)
    assert last is None or since < last <= now
    assert following is None or following > now
    assert when.after(since if last is None else last, since) == following
    if following is not None:
        assert when.until(following, since) == following
        assert when.until(following - 1, since) == last


@given(texts, st.sampled_from([0, LAST_MOMENT - 1, LAST_MOMENT, LAST_MOMENT + 1, 1 << 52]))
def test_a_clock_at_the_end_of_time_has_no_next_due_time(text: str, now: int) -> None:
    when = parse_when(text, "UTC")
    following, last = when.after(now, 0), when.until(now, 0)
    assert following is None or now < following <= LAST_MOMENT
    assert last is None or last <= min(now, LAST_MOMENT)


# --- decisions about due times that have passed -----------------------------------------------------------------------

EVERY_TEN = parse_when("10 minutes", "UTC")


@pytest.mark.parametrize("if_missed", ["late", "skip", "ask"])
def test_a_due_time_is_fired_on_time_under_every_policy(if_missed: IfMissed) -> None:
    for late in (0, 1, ON_TIME):
        plan = plan_firing(EVERY_TEN, 0, 10 * MINUTE, 10 * MINUTE + late, if_missed)
        assert (plan.fire, plan.missed, plan.next_due) == (10 * MINUTE, 0, 20 * MINUTE)


def test_missed_due_times_are_run_once_left_out_or_asked_about() -> None:
    now = 35 * MINUTE
    late, skip, ask = (plan_firing(EVERY_TEN, 0, 10 * MINUTE, now, policy) for policy in ("late", "skip", "ask"))
    assert (late.fire, late.ask, late.missed, late.first_missed) == (30 * MINUTE, None, 2, 10 * MINUTE)
    assert (skip.fire, skip.ask, skip.missed, skip.first_missed) == (None, None, 3, 10 * MINUTE)
    assert (ask.fire, ask.ask, ask.missed, ask.first_missed) == (None, 30 * MINUTE, 2, 10 * MINUTE)
    assert {late.next_due, skip.next_due, ask.next_due} == {40 * MINUTE}


def test_the_last_of_several_due_times_may_still_be_on_time() -> None:
    plan = plan_firing(EVERY_TEN, 0, 10 * MINUTE, 30 * MINUTE + ON_TIME, "skip")
    assert (plan.fire, plan.missed) == (30 * MINUTE, 2)


def test_missed_due_times_are_counted_to_a_limit() -> None:
    every_minute = parse_when("1 minute", "UTC")
    plan = plan_firing(every_minute, 0, MINUTE, 3_000 * MINUTE + 2 * ON_TIME, "skip")
    assert plan.missed == count_due(every_minute, 0, MINUTE, 3_000 * MINUTE) == MOST_COUNTED


@given(texts, moments, st.lists(st.integers(-3 * DAY, 40 * DAY), max_size=12), st.sampled_from(["late", "skip", "ask"]))
def test_a_clock_that_jumps_runs_no_due_time_twice_and_loses_none(
    text: str, since: int, jumps: list[int], if_missed: IfMissed
) -> None:
    when: When = parse_when(text, "UTC")
    due = first = when.after(since, since)
    assume(first is not None)
    now, decided, fired = since, 0, []
    horizon = since
    for jump in jumps:
        now = max(0, now + jump)
        if due is None or due > now:
            continue
        plan = plan_firing(when, since, due, now, if_missed)
        chosen = [moment for moment in (plan.fire, plan.ask) if moment is not None]
        fired += chosen
        decided += plan.missed + len(chosen)
        assert len(chosen) <= 1
        assert all(due <= moment <= now for moment in chosen)
        assert plan.next_due is None or plan.next_due > now
        horizon, due = max(horizon, now), plan.next_due
        if isinstance(when, Once):
            assert due is None
        assume(decided < MOST_COUNTED)
    assert all(earlier < later for earlier, later in pairwise(fired))
    passed = 0 if first is None or first > horizon else count_due(when, since, first, horizon)
    assert decided == passed
