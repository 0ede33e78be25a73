"""Schedules: created, listed, paused, resumed and deleted by their owner."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from backstay.errors import (
    BackstayError,
    InvalidPayload,
    NotFound,
    NothingToDo,
    QuotaExceeded,
    RequestMismatch,
    SessionEnded,
    TooLarge,
    UnknownAgent,
)
from backstay.model.ids import IdSource, ScheduleId
from backstay.model.limits import Limits
from backstay.model.schedules.schedule import Schedule
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import ContractBase, OpenAnother
from tests.contract.builders import AGENT, ME, STRANGER, new_session, room

MINUTE = 60_000


def every(store: Store, when: str = "10 minutes", *, owner: str = ME, **options: Any) -> Schedule:
    """A schedule that sends to a room."""
    to = options.pop("to", room())
    return store.create_schedule(when, to, options.pop("text", "tea?"), owner=owner, **options)


def steps(store: Store, schedule: ScheduleId) -> list[str]:
    """What happened to a schedule, oldest first."""
    return [entry.step for entry in reversed(store.schedule_log(schedule, owner=ME, limit=100))]


VERBS: dict[str, Callable[[Store, ScheduleId, str], object]] = {
    "read": lambda store, schedule, owner: store.schedule(schedule, owner=owner),
    "log": lambda store, schedule, owner: store.schedule_log(schedule, owner=owner),
    "pause": lambda store, schedule, owner: store.pause_schedule(schedule, owner=owner),
    "resume": lambda store, schedule, owner: store.resume_schedule(schedule, owner=owner),
    "skip": lambda store, schedule, owner: store.skip_schedule(schedule, owner=owner),
    "run": lambda store, schedule, owner: store.run_schedule(schedule, owner=owner),
    "delete": lambda store, schedule, owner: store.delete_schedule(schedule, owner=owner),
}
every_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())


class ScheduleContract(ContractBase):
    """Facts about schedules, apart from their firing."""

    def test_a_schedule_is_the_same_in_every_process(self, store: Store, other: Store, clock: ManualClock) -> None:
        made = every(store, "day 9:00", zone="Europe/Zurich", agent=AGENT, if_busy="steer", if_missed="ask")

        assert other.schedule(made.id, owner=ME) == made
        assert other.schedules(owner=ME) == (made,)
        assert (made.when, made.to, made.text) == ("day 09:00 Europe/Zurich", room().spelling, "tea?")
        assert (made.agent, made.if_busy, made.if_missed, made.state) == (AGENT, "steer", "ask", "active")
        assert (made.last.step, made.last.at, made.revision) == ("created", clock.now(), 1)
        assert made.next_due is not None
        assert made.next_due > clock.now()

    @every_verb
    def test_a_schedule_of_another_owner_is_not_found(
        self, store: Store, verb: Callable[[Store, ScheduleId, str], object]
    ) -> None:
        made = every(store)
        for which, owner in ((made.id, STRANGER), (IdSource(ManualClock()).schedule(), ME), (ScheduleId("sch_1"), ME)):
            with pytest.raises(NotFound):
                verb(store, which, owner)
        assert store.schedules(owner=STRANGER) == ()
        assert store.schedules(owner=ME) == (made,)

    def test_a_schedule_needs_a_session_of_its_owner_that_is_open(self, store: Store) -> None:
        theirs, ended = new_session(store, owner=STRANGER), new_session(store)
        store.end(ended, owner=ME)
        with pytest.raises(NotFound):
            every(store, to=theirs)
        with pytest.raises(SessionEnded):
            every(store, to=ended)
        assert store.schedules(owner=ME) == ()

    def test_a_repeated_request_makes_one_schedule(self, store: Store, other: Store) -> None:
        first = every(store, request_id="r1")

        assert every(other, request_id="r1") == first
        assert every(other, request_id="r1", owner=STRANGER).owner == STRANGER
        with pytest.raises(RequestMismatch):
            every(other, request_id="r1", text="coffee?")
        assert store.schedules(owner=ME) == (first,)

    @pytest.mark.parametrize(
        ("when", "options", "error"),
        [
            ("2020-01-01 9:00", {}, InvalidPayload),
            ("often", {}, InvalidPayload),
            ("day 9:00", {"zone": "Nowhere"}, InvalidPayload),
            ("day 9:00", {"text": " "}, InvalidPayload),
            ("day 9:00", {"text": "x" * 20_000}, TooLarge),
            ("day 9:00", {"text": "\0"}, InvalidPayload),
            ("day 9:00", {"if_busy": "later"}, InvalidPayload),
            ("day 9:00", {"if_missed": "never"}, InvalidPayload),
            ("day 9:00", {"request_id": ""}, InvalidPayload),
            ("day 9:00", {"agent": "nobody"}, UnknownAgent),
            ("day 9:00", {"agent": ""}, InvalidPayload),
            ("day 9:00", {"to": "kitchen"}, NotFound),
        ],
    )
    def test_an_invalid_schedule_is_refused(
        self, store: Store, when: str, options: dict[str, Any], error: type[BackstayError]
    ) -> None:
        store.register_agents([AGENT])
        with pytest.raises(error):
            every(store, when, **options)
        assert store.schedules(owner=ME) == ()

    def test_an_owner_has_a_limited_number_of_schedules(self, open_another: OpenAnother) -> None:
        store = open_another(limits=Limits(schedules_per_owner=2))
        first, _ = every(store), every(store)
        with pytest.raises(QuotaExceeded):
            every(store)
        every(store, owner=STRANGER)
        store.delete_schedule(first.id, owner=ME)
        every(store)
        assert len(store.schedules(owner=ME)) == 2

    def test_an_ended_schedule_counts_no_more_and_the_oldest_are_removed(
        self, open_another: OpenAnother, clock: ManualClock
    ) -> None:
        store = open_another(limits=Limits(schedules_per_owner=1))
        made = []
        for _ in range(103):
            made.append(every(store, soon(clock)).id)
            clock.set_wall(due_of(store, made[-1]))
            store.fire_due([AGENT])
        left = [one.id for one in store.schedules(owner=ME)]
        assert left == made[-101:]
        assert {one.state for one in store.schedules(owner=ME)} == {"ended"}

    def test_a_paused_schedule_fires_nothing_and_counts_what_it_left_out(
        self, store: Store, clock: ManualClock
    ) -> None:
        made = every(store)
        paused = store.pause_schedule(made.id, owner=ME)
        assert (paused.state, paused.revision, paused.next_due) == ("paused", 2, made.next_due)
        assert store.pause_schedule(made.id, owner=ME) == paused
        clock.advance(35 * 60)
        assert store.fire_due([AGENT]).next is None

        resumed = store.resume_schedule(made.id, owner=ME)

        assert (resumed.state, resumed.last.step, resumed.last.missed) == ("active", "resumed", 3)
        assert resumed.next_due == made.created_at + 40 * MINUTE
        assert store.resume_schedule(made.id, owner=ME) == resumed
        assert store.fire_due([AGENT]).next == resumed.next_due
        assert steps(store, made.id) == ["created", "paused", "resumed"]

    def test_an_ended_schedule_is_neither_paused_nor_resumed(self, store: Store, clock: ManualClock) -> None:
        made = every(store, soon(clock))
        clock.set_wall(due_of(store, made.id))
        store.fire_due([AGENT])
        for verb in (store.pause_schedule, store.resume_schedule):
            with pytest.raises(NothingToDo):
                verb(made.id, owner=ME)
        assert store.schedule(made.id, owner=ME).state == "ended"

    def test_a_deleted_schedule_is_gone_with_its_log(self, store: Store, other: Store, clock: ManualClock) -> None:
        made = every(store)
        assert other.delete_schedule(made.id, owner=ME).id == made.id
        clock.advance(3_600)
        assert store.fire_due([AGENT]).next is None
        assert store.schedules(owner=ME) == ()
        with pytest.raises(NotFound):
            store.schedule_log(made.id, owner=ME)

    def test_the_log_keeps_the_newest_entries(self, store: Store) -> None:
        made = every(store)
        for _ in range(60):
            store.pause_schedule(made.id, owner=ME)
            store.resume_schedule(made.id, owner=ME)
        log = store.schedule_log(made.id, owner=ME, limit=1_000)
        assert [entry.number for entry in log] == list(range(121, 21, -1))


def soon(clock: ManualClock) -> str:
    """The next full minute, as a moment of a schedule."""
    moment = datetime.fromtimestamp(clock.now() // MINUTE * 60, UTC) + timedelta(minutes=1)
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def due_of(store: Store, schedule: ScheduleId) -> int:
    """The next due time."""
    due = store.schedule(schedule, owner=ME).next_due
    assert due is not None
    return due
