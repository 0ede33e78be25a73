"""Firings: at each due time a message is sent once, or the reason why not is recorded."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from backstay.errors import NotFound, NothingToDo, SessionEnded
from backstay.model.addresses.address import Address
from backstay.model.content import Text
from backstay.model.event import EventBody, ScheduleFired, ScheduleMissed, TurnSubmitted
from backstay.model.ids import ScheduleId, SessionId
from backstay.model.turn import Completed
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import ContractBase
from tests.contract.builders import AGENT, ME, bodies_of, new_session, room, start
from tests.contract.schedules.schedules import MINUTE, due_of, every, soon, steps

TEN = 10 * 60


def told(store: Store, session: SessionId) -> list[EventBody]:
    """The events of schedules in the log of a session."""
    return [body for body in bodies_of(store, session) if isinstance(body, ScheduleFired | ScheduleMissed)]


def inputs(store: Store, session: SessionId) -> list[str | None]:
    """The request ids of the turns that wait in a session."""
    return [turn.request_id for turn in store.waiting(session, owner=ME)]


def fire_at(store: Store, clock: ManualClock, schedule: ScheduleId, late: float = 0) -> None:
    """Let the next due time come, and so many seconds pass."""
    clock.set_wall(due_of(store, schedule) + round(late * 1000))
    store.fire_due([AGENT])


class FiringContract(ContractBase):
    """Facts about the due times of schedules."""

    def test_a_due_time_sends_one_message_and_the_next_one_follows(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        made = every(store, to=session)
        assert store.fire_due([AGENT]).next == made.next_due

        fire_at(store, clock, made.id)

        (turn,) = store.waiting(session, owner=ME)
        assert (turn.request_id, turn.agent, turn.state) == (f"{made.id}/{made.next_due}", AGENT, "waiting")
        after = store.schedule(made.id, owner=ME)
        assert after.next_due == made.created_at + 20 * MINUTE
        assert (after.last.step, after.last.due, after.last.turn, after.last.session, after.last.late) == (
            "fired",
            made.next_due,
            turn.id,
            session,
            0,
        )
        assert told(store, session) == [ScheduleFired(made.id, made.next_due)]
        assert bodies_of(store, session)[-2:] == [
            TurnSubmitted(AGENT, (Text("tea?"),)),
            ScheduleFired(made.id, made.next_due),
        ]

    def test_nothing_is_fired_before_its_time_or_by_an_app_without_agents(
        self, store: Store, clock: ManualClock
    ) -> None:
        session = new_session(store)
        made = every(store, to=session)
        clock.set_wall(due_of(store, made.id) - 1)
        assert store.fire_due([AGENT]).due == ()
        clock.advance(1)
        assert [one.id for one in store.fire_due([]).due] == [made.id]
        assert inputs(store, session) == []

    def test_processes_that_fire_at_once_send_one_message(self, store: Store, other: Store, clock: ManualClock) -> None:
        session = new_session(store)
        made = [every(store, to=session) for _ in range(20)]
        clock.advance(TEN)
        with ThreadPoolExecutor(2) as threads:
            for fired in [threads.submit(handle.fire_due, [AGENT]) for handle in (store, other)]:
                fired.result()
        store.fire_due([AGENT])
        assert sorted(filter(None, inputs(store, session))) == sorted(f"{one.id}/{one.next_due}" for one in made)
        assert {tuple(steps(store, one.id)) for one in made} == {("created", "fired")}

    def test_a_due_time_that_was_decided_is_not_fired_again(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        made = every(store, to=session)
        due = due_of(store, made.id)
        fire_at(store, clock, made.id)
        assert store.fire_schedule(made.id, due, owner=ME) is None
        assert store.fail_schedule(made.id, due, owner=ME, reason="late") is None
        assert store.stop_schedule(made.id, due, owner=ME, reason="late") is None
        clock.advance(-5 * 60)
        store.fire_due([AGENT])
        assert len(inputs(store, session)) == 1

    def test_many_due_schedules_are_fired_in_steps(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        made = {every(store, to=session).id for _ in range(120)}
        clock.advance(TEN)
        assert len(store.fire_due([AGENT]).due) == 1
        assert len(inputs(store, session)) == 100
        assert store.fire_due([AGENT]).due == ()
        assert {(request or "").partition("/")[0] for request in inputs(store, session)} == made

    def test_a_single_moment_ends_its_schedule(self, store: Store, clock: ManualClock) -> None:
        made = every(store, soon(clock))
        fire_at(store, clock, made.id)
        after = store.schedule(made.id, owner=ME)
        assert (after.state, after.next_due, after.last.step) == ("ended", None, "fired")
        assert len(inputs(store, store.at(room(), owner=ME).id)) == 1

    def test_a_new_session_is_made_for_an_address_whose_session_was_deleted(
        self, store: Store, clock: ManualClock
    ) -> None:
        made = every(store)
        fire_at(store, clock, made.id)
        first = store.at(room(), owner=ME).id
        store.delete(first, owner=ME)
        fire_at(store, clock, made.id)
        assert store.at(room(), owner=ME).id != first
        assert steps(store, made.id) == ["created", "fired", "fired"]

    # --- missed due times ---------------------------------------------------------------------------------------------

    def test_missed_due_times_are_run_late_once_and_counted(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        made = every(store, to=session)
        fire_at(store, clock, made.id, late=25 * 60)
        last = made.created_at + 30 * MINUTE
        assert inputs(store, session) == [f"{made.id}/{last}"]
        assert told(store, session) == [ScheduleFired(made.id, last, late=5 * MINUTE, missed=2)]
        assert steps(store, made.id) == ["created", "missed", "fired"]
        assert store.schedule(made.id, owner=ME).last.late == 5 * MINUTE

    def test_missed_due_times_are_skipped_visibly(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        made = every(store, to=session, if_missed="skip")
        revision = store.session(session, owner=ME).revision
        fire_at(store, clock, made.id, late=25 * 60)
        assert inputs(store, session) == []
        assert told(store, session) == [ScheduleMissed(made.id, made.created_at + 10 * MINUTE, "skipped", missed=3)]
        assert store.session(session, owner=ME).revision == revision + 1
        after = store.schedule(made.id, owner=ME)
        assert (after.last.step, after.last.missed, after.next_due) == ("missed", 3, made.created_at + 40 * MINUTE)

    def test_a_person_decides_about_a_missed_due_time(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        made = every(store, to=session, if_missed="ask")
        fire_at(store, clock, made.id, late=300)
        asked = store.schedule(made.id, owner=ME)
        assert (asked.asked_due, asked.last.step, inputs(store, session)) == (made.next_due, "asked", [])
        assert told(store, session) == [ScheduleMissed(made.id, made.created_at + 10 * MINUTE, "asked")]

        fire_at(store, clock, made.id)
        run = store.run_schedule(made.id, owner=ME)

        assert (run.asked_due, run.last.due) == (None, made.next_due)
        assert inputs(store, session) == [f"{made.id}/{asked.next_due}", f"{made.id}/{made.next_due}"]
        with pytest.raises(NothingToDo):
            store.skip_schedule(made.id, owner=ME)

    def test_a_question_that_nobody_answers_is_replaced_by_the_next_one(self, store: Store, clock: ManualClock) -> None:
        made = every(store, if_missed="ask")
        fire_at(store, clock, made.id, late=300)
        fire_at(store, clock, made.id, late=300)
        skipped = store.skip_schedule(made.id, owner=ME)
        assert (skipped.asked_due, skipped.last.due) == (None, made.created_at + 20 * MINUTE)
        assert steps(store, made.id) == ["created", "asked", "missed", "asked", "skipped"]

    def test_a_single_moment_that_is_asked_about_ends_with_the_decision(self, store: Store, clock: ManualClock) -> None:
        run, skipped = (every(store, soon(clock), if_missed="ask") for _ in range(2))
        clock.set_wall(due_of(store, run.id) + 300_000)
        store.fire_due([AGENT])
        assert {one.state for one in store.schedules(owner=ME)} == {"active"}
        assert store.run_schedule(run.id, owner=ME).state == "ended"
        assert store.skip_schedule(skipped.id, owner=ME).state == "ended"
        assert len(inputs(store, store.at(room(), owner=ME).id)) == 1

    def test_a_single_moment_that_passes_in_a_pause_is_decided_by_its_policy(
        self, store: Store, clock: ManualClock
    ) -> None:
        made = every(store, soon(clock), if_missed="skip")
        store.pause_schedule(made.id, owner=ME)
        clock.advance(3_600)
        store.resume_schedule(made.id, owner=ME)
        store.fire_due([AGENT])
        assert steps(store, made.id) == ["created", "paused", "resumed", "missed"]
        assert store.schedule(made.id, owner=ME).state == "ended"

    def test_a_clock_that_goes_back_and_forward_fires_no_due_time_twice(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        made = every(store, to=session)
        fire_at(store, clock, made.id)
        for jump in (-TEN, TEN, -3 * TEN, 3 * TEN, TEN):
            clock.set_wall(clock.now() + jump * 1000)
            store.fire_due([AGENT])
        sent = inputs(store, session)
        assert sent == [f"{made.id}/{made.created_at + due * MINUTE}" for due in (10, 20)]

    # --- messages that cannot be sent ---------------------------------------------------------------------------------

    def test_a_session_that_is_over_fails_each_due_time_once(self, store: Store, clock: ManualClock) -> None:
        ended, deleted = new_session(store), new_session(store)
        made = [every(store, to=session) for session in (ended, deleted)]
        store.end(ended, owner=ME)
        store.delete(deleted, owner=ME)
        for _ in range(2):
            clock.advance(TEN)
            store.fire_due([AGENT])
            store.fire_due([AGENT])
        for one in made:
            assert steps(store, one.id) == ["created", "failed", "failed"]
            last = store.schedule(one.id, owner=ME).last
            assert (last.due, last.turn) == (one.created_at + 20 * MINUTE, None)
            assert last.reason
        with pytest.raises(SessionEnded):
            store.run_schedule(made[0].id, owner=ME)
        with pytest.raises(NotFound):
            store.run_schedule(made[1].id, owner=ME)

    def test_an_agent_that_nobody_serves_fails_the_due_time_in_the_session(
        self, store: Store, clock: ManualClock
    ) -> None:
        session = new_session(store)
        made = every(store, to=session)
        store.register_agents(["reviewer"])
        fire_at(store, clock, made.id)
        (missed,) = told(store, session)
        assert isinstance(missed, ScheduleMissed)
        assert (missed.due, missed.decision) == (made.next_due, "failed")
        assert "default" in missed.reason
        assert steps(store, made.id) == ["created", "failed"]

    def test_a_busy_session_refuses_the_message_if_the_schedule_says_so(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        made = every(store, to=session, if_busy="reject")
        turn = start(store, session)
        fire_at(store, clock, made.id)
        assert steps(store, made.id) == ["created", "failed"]
        store.finish(turn, Completed())
        fire_at(store, clock, made.id)
        assert steps(store, made.id) == ["created", "failed", "fired"]

    def test_a_message_to_a_busy_session_can_go_to_a_fork(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        made = every(store, to=session, if_busy="fork")
        start(store, session)
        fire_at(store, clock, made.id)
        last = store.schedule(made.id, owner=ME).last
        assert last.session not in (None, session)
        assert last.session is not None
        assert told(store, last.session) == [ScheduleFired(made.id, made.next_due)]

    # --- now ----------------------------------------------------------------------------------------------------------

    def test_a_schedule_can_be_run_at_any_time_besides_its_due_times(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        made = every(store, to=session)
        run = store.run_schedule(made.id, owner=ME, request_id="r1")
        assert store.run_schedule(made.id, owner=ME, request_id="r1") == run
        store.pause_schedule(made.id, owner=ME)
        store.run_schedule(made.id, owner=ME)
        assert (run.next_due, run.last.due, run.last.session) == (made.next_due, None, session)
        assert len(inputs(store, session)) == 2
        assert told(store, session) == [ScheduleFired(made.id)] * 2

    def test_an_exported_session_keeps_the_events_of_its_schedules(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        made = every(store, to=session, if_missed="skip")
        fire_at(store, clock, made.id)
        fire_at(store, clock, made.id, late=300)
        turn = store.claim([AGENT], session=session, owner=ME)
        assert turn is not None
        store.finish(turn, Completed(), bodies=[Text("yes")])
        store.fold(older_than=0)
        copy = store.import_session(store.export(session, owner=ME), owner=ME, new_ids=True).session.id
        assert told(store, copy) == told(store, session)
        assert len(told(store, copy)) == 2

    def test_an_address_without_a_host_gets_the_one_of_the_store(self, store: Store) -> None:
        made = every(store, to=Address.workspace("/srv/project", scope="main"))
        assert Address.parse(made.to).on(store.host).spelling == made.to
