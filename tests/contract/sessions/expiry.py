"""Expiry: the time to live of a session, and the collection of expired ones."""

import pytest

from backstay.errors import SessionExpired
from backstay.model import event, message
from backstay.model.content import Body, Text, ToolCall
from backstay.model.session import Collected, Forecast, Ttl
from backstay.model.turn import Completed
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import ContractBase, OpenAnother
from tests.contract.builders import (
    ME,
    STRANGER,
    bodies_of,
    enqueue,
    look,
    new_session,
    refused,
    room,
    start,
    talk,
    texts,
)
from tests.contract.sessions.sessions import Verb, every_write
from tests.touching import touch

HOUR = 3600.0
TICK = 0.001


class ExpiryContract(ContractBase):
    """Facts about sessions whose time runs out."""

    # --- time to live -----------------------------------------------------------------------------------------------

    def test_a_forecast_counts_what_collect_and_fold_would_do_and_writes_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        mortal = store.create(owner=ME, ttl=Ttl(idle=HOUR)).id
        ended, alive = new_session(store), new_session(store)
        store.finish(start(store, alive), Completed(), bodies=[Text("one"), Text("two")])
        store.end(ended, owner=ME)
        store.begin_upload(owner=ME)
        assert store.forecast() == Forecast()
        clock.advance(48 * HOUR)
        before = [look(store, session) for session in (mortal, ended, alive)]

        forecast = store.forecast(keep_closed_for=HOUR, fold_older_than=HOUR)
        assert forecast == Forecast(expired=1, deleted=1, blobs=1, folded=1)
        assert store.forecast(keep_closed_for=30 * 24 * HOUR) == Forecast(expired=1, blobs=1)
        assert [look(store, session) for session in (mortal, ended, alive)] == before
        assert store.collect(keep_closed_for=HOUR) == Collected(expired=1, deleted=1, blobs=1)
        assert store.fold(older_than=HOUR) > 0
        assert store.forecast(keep_closed_for=HOUR, fold_older_than=HOUR) == Forecast()

    def test_a_session_without_a_time_to_live_never_expires(self, store: Store, clock: ManualClock) -> None:
        session = store.resolve(room(), owner=ME).session

        clock.advance(100 * 365 * 24 * HOUR)

        assert session.expires_at is None
        assert store.resolve(room(), owner=ME).how == "resumed"

    @pytest.mark.parametrize("ttl", [Ttl(idle=HOUR), Ttl(absolute=HOUR)], ids=["idle", "absolute"])
    def test_a_session_lives_until_its_last_millisecond(self, store: Store, clock: ManualClock, ttl: Ttl) -> None:
        session = store.resolve(room(), owner=ME, ttl=ttl).session

        clock.advance(HOUR - TICK)

        assert store.session(session.id, owner=ME).state == "open"
        assert store.resolve(room(), owner=ME).how == "resumed"

    @pytest.mark.parametrize("ttl", [Ttl(idle=HOUR), Ttl(absolute=HOUR)], ids=["idle", "absolute"])
    def test_a_session_expires_exactly_at_the_end_of_its_time_to_live(
        self, store: Store, clock: ManualClock, ttl: Ttl
    ) -> None:
        session = store.resolve(room(), owner=ME, ttl=ttl).session

        clock.advance(HOUR)

        assert session.expires_at == clock.now()
        assert store.session(session.id, owner=ME).state == "expired"
        found = store.resolve(room(), owner=ME)
        assert (found.how, found.generation) == ("replaced", 2)
        assert found.session.id != session.id

    def test_time_to_live_counts_on_the_wall_clock(self, store: Store, clock: ManualClock) -> None:
        session = store.resolve(room(), owner=ME, ttl=Ttl(idle=HOUR)).session.id

        clock.set_wall(clock.now() + round(HOUR * 1000))

        assert store.session(session, owner=ME).state == "expired"

    def test_a_restart_of_the_machine_changes_no_time_to_live(self, store: Store, clock: ManualClock) -> None:
        session = store.resolve(room(), owner=ME, ttl=Ttl(idle=HOUR)).session.id

        clock.reboot()
        clock.advance(HOUR - TICK)

        assert store.session(session, owner=ME).state == "open"

    @pytest.mark.parametrize(
        "act",
        [
            lambda store, _: store.resolve(room(), owner=ME),
            lambda store, _: store.submit(room(), "hello", owner=ME, start=True),
            lambda store, session: store.record(session, [message.user("hello")], owner=ME),
        ],
        ids=["resolve", "submit", "record"],
    )
    def test_activity_postpones_idle_expiry(self, store: Store, clock: ManualClock, act: Verb) -> None:
        session = store.resolve(room(), owner=ME, ttl=Ttl(idle=HOUR)).session.id
        clock.advance(HOUR - TICK)

        act(store, session)

        assert store.session(session, owner=ME).expires_at == clock.now() + HOUR * 1000
        clock.advance(HOUR - TICK)
        assert store.session(session, owner=ME).state == "open"

    def test_every_lookup_postpones_idle_expiry_however_soon_it_follows(self, store: Store, clock: ManualClock) -> None:
        store.resolve(room(), owner=ME, ttl=Ttl(idle=HOUR))

        for _ in range(5):
            clock.advance(0.001)
            assert store.resolve(room(), owner=ME).session.expires_at == clock.now() + HOUR * 1000

    @pytest.mark.parametrize("body", [Text("one"), ToolCall(id="c", name="look", arguments={})])
    def test_the_work_of_a_turn_postpones_idle_expiry_and_moves_the_session_up(
        self, store: Store, clock: ManualClock, body: Body
    ) -> None:
        working = start(store, store.create(owner=ME, ttl=Ttl(idle=HOUR)).id)
        clock.advance(HOUR / 2)
        other = new_session(store)
        clock.advance(HOUR / 4)

        store.checkpoint(working, [body])

        session = store.session(working.session, owner=ME)
        assert (session.active_at, session.expires_at) == (clock.now(), clock.now() + HOUR * 1000)
        assert [one.id for one in store.list(owner=ME).sessions] == [working.session, other]

    @pytest.mark.parametrize("ttl", [Ttl(idle=HOUR), Ttl(absolute=HOUR)], ids=["idle", "absolute"])
    @pytest.mark.parametrize("busy", ["running", "waiting"])
    def test_a_live_session_never_shows_an_expiry_in_the_past(
        self, open_another: OpenAnother, clock: ManualClock, ttl: Ttl, busy: str
    ) -> None:
        store = open_another(lease_seconds=10 * HOUR)
        session = store.create(owner=ME, ttl=ttl).id
        proof = start(store, session) if busy == "running" else None
        waiting = None if proof is not None else enqueue(store, session)
        clock.advance(2 * HOUR)

        read = store.session(session, owner=ME)
        assert (read.state, read.expires_at) == ("open", clock.now())
        assert store.list(owner=ME).sessions == (read,)
        if proof is not None:
            store.finish(proof, Completed())
        if waiting is not None:
            store.withdraw(waiting.id, owner=ME)
        clock.advance(HOUR)
        assert store.session(session, owner=ME).state == "expired"

    def test_activity_does_not_postpone_absolute_expiry(self, store: Store, clock: ManualClock) -> None:
        session = store.resolve(room(), owner=ME, ttl=Ttl(absolute=HOUR)).session.id
        clock.advance(HOUR - TICK)
        touch(store, session, owner=ME)

        clock.advance(TICK)

        assert store.session(session, owner=ME).state == "expired"

    @pytest.mark.parametrize("ttl", [Ttl(idle=HOUR, absolute=2 * HOUR), Ttl(idle=2 * HOUR, absolute=HOUR)])
    def test_the_earlier_of_both_limits_counts(self, store: Store, clock: ManualClock, ttl: Ttl) -> None:
        session = store.resolve(room(), owner=ME, ttl=ttl).session

        clock.advance(HOUR)

        assert session.expires_at == clock.now()
        assert store.session(session.id, owner=ME).state == "expired"

    def test_resolving_without_a_time_to_live_keeps_the_first(self, store: Store, clock: ManualClock) -> None:
        store.resolve(room(), owner=ME, ttl=Ttl(idle=HOUR))

        store.resolve(room(), owner=ME)

        clock.advance(HOUR)
        assert store.resolve(room(), owner=ME).how == "replaced"

    def test_resolving_with_another_time_to_live_changes_it(self, store: Store, clock: ManualClock) -> None:
        store.resolve(room(), owner=ME, ttl=Ttl(idle=HOUR))

        again = store.resolve(room(), owner=ME, ttl=Ttl(absolute=2 * HOUR)).session

        assert again.expires_at == again.created_at + 2 * HOUR * 1000
        clock.advance(2 * HOUR - TICK)
        assert store.session(again.id, owner=ME).state == "open"

    def test_an_input_for_a_session_changes_its_time_to_live(self, store: Store, clock: ManualClock) -> None:
        session = store.create(owner=ME).id

        submitted = store.submit(session, "hello", owner=ME, ttl=Ttl(absolute=HOUR)).session
        recorded = store.record(session, [message.user("hello")], owner=ME, ttl=Ttl(absolute=2 * HOUR)).session

        assert submitted.expires_at == submitted.created_at + HOUR * 1000
        assert recorded.expires_at == recorded.created_at + 2 * HOUR * 1000

    def test_an_input_for_a_session_that_is_older_than_its_new_time_to_live_changes_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        session = store.create(owner=ME)
        clock.advance(HOUR)

        with pytest.raises(SessionExpired):
            store.submit(session.id, "hello", owner=ME, ttl=Ttl(absolute=HOUR))

        assert store.session(session.id, owner=ME) == session

    def test_a_replacement_has_only_the_time_to_live_it_was_given(self, store: Store, clock: ManualClock) -> None:
        store.resolve(room(), owner=ME, ttl=Ttl(idle=HOUR))
        clock.advance(HOUR)

        assert store.resolve(room(), owner=ME).session.expires_at is None

    def test_an_absolute_limit_counts_from_birth_whenever_it_is_given(self, store: Store, clock: ManualClock) -> None:
        born = store.resolve(room(), owner=ME).session.created_at
        clock.advance(HOUR / 2)

        session = store.resolve(room(), owner=ME, ttl=Ttl(absolute=HOUR)).session

        assert session.expires_at == born + HOUR * 1000

    @pytest.mark.parametrize("ttl", [Ttl(idle=HOUR), Ttl(absolute=HOUR)], ids=["idle", "absolute"])
    def test_a_time_to_live_that_is_already_over_replaces_the_session(
        self, store: Store, clock: ManualClock, ttl: Ttl
    ) -> None:
        first = store.resolve(room(), owner=ME).session
        clock.advance(HOUR)

        found = store.resolve(room(), owner=ME, ttl=ttl)
        clock.advance(HOUR)
        accepted = store.submit(room(), "hello", owner=ME, ttl=ttl)

        assert (found.how, found.generation, found.session.state) == ("replaced", 2, "open")
        assert store.session(first.id, owner=ME).state == "expired"
        assert accepted.session.id not in (first.id, found.session.id)

    def test_a_session_can_be_created_submitted_to_and_recorded_with_a_time_to_live(
        self, store: Store, clock: ManualClock
    ) -> None:
        ttl = Ttl(idle=HOUR)

        made = store.create(owner=ME, ttl=ttl)
        sent = store.submit(room("kitchen"), "hello", owner=ME, ttl=ttl).session
        kept = store.record(room("cellar"), [message.user("hello")], owner=ME, ttl=ttl).session

        assert [session.expires_at for session in (made, sent, kept)] == [clock.now() + HOUR * 1000] * 3

    def test_a_running_turn_postpones_expiry(self, store: Store, clock: ManualClock) -> None:
        session = store.resolve(room(), owner=ME, ttl=Ttl(idle=HOUR, absolute=HOUR)).session.id
        clock.advance(HOUR - TICK)
        proof = start(store, room())

        clock.advance(TICK)

        assert store.session(session, owner=ME).state == "open"
        assert store.resolve(room(), owner=ME).how == "resumed"
        store.finish(proof, Completed())
        assert store.session(session, owner=ME).state == "expired"

    def test_a_waiting_turn_postpones_expiry(self, store: Store, clock: ManualClock) -> None:
        session = store.resolve(room(), owner=ME, ttl=Ttl(idle=HOUR)).session.id
        waiting = enqueue(store, session)

        clock.advance(10 * HOUR)

        assert store.resolve(room(), owner=ME).how == "resumed"
        clock.advance(HOUR)
        store.withdraw(waiting.id, owner=ME)
        assert store.session(session, owner=ME).state == "expired"

    def test_the_end_of_a_turn_is_where_idle_time_begins(self, store: Store, clock: ManualClock) -> None:
        session = store.resolve(room(), owner=ME, ttl=Ttl(idle=HOUR)).session.id
        proof = start(store, room())
        for _ in range(3):
            clock.advance(HOUR)
            proof = store.renew(proof).open

        store.finish(proof, Completed())

        clock.advance(HOUR - TICK)
        assert store.session(session, owner=ME).state == "open"
        clock.advance(TICK)
        assert store.session(session, owner=ME).state == "expired"

    @every_write
    def test_an_expired_session_refuses_writes(self, store: Store, clock: ManualClock, write: Verb) -> None:
        session = store.create(owner=ME, ttl=Ttl(idle=HOUR)).id
        talk(store, session)
        clock.advance(HOUR)

        with refused(store, session, SessionExpired):
            write(store, session)

    @every_write
    def test_a_session_that_was_replaced_refuses_writes(self, store: Store, clock: ManualClock, write: Verb) -> None:
        session = store.resolve(room(), owner=ME, ttl=Ttl(idle=HOUR)).session.id
        talk(store, session)
        clock.advance(HOUR)
        store.resolve(room(), owner=ME)

        with refused(store, session, SessionExpired):
            write(store, session)

    def test_an_expired_session_stays_readable(self, store: Store, clock: ManualClock) -> None:
        session = store.create(owner=ME, ttl=Ttl(idle=HOUR)).id
        (turn,) = talk(store, session)

        clock.advance(HOUR)

        assert texts(store, session) == ["question 1", "answer 1"]
        assert look(store, session, [turn.id]).turns == (turn,)

    def test_an_expired_session_cannot_be_ended(self, store: Store, clock: ManualClock) -> None:
        session = store.create(owner=ME, ttl=Ttl(idle=HOUR)).id
        clock.advance(HOUR)

        with refused(store, session, SessionExpired):
            store.end(session, owner=ME)

    def test_a_clock_that_is_set_back_does_not_revive_a_collected_session(
        self, store: Store, clock: ManualClock
    ) -> None:
        session = store.resolve(room(), owner=ME, ttl=Ttl(idle=HOUR)).session.id
        clock.advance(HOUR)
        store.collect()

        clock.set_wall(clock.now() - round(HOUR * 1000))

        assert store.session(session, owner=ME).state == "expired"
        with refused(store, session, SessionExpired):
            touch(store, session, owner=ME)
        assert store.resolve(room(), owner=ME).how == "replaced"

    def test_a_clock_that_is_set_back_does_not_revive_a_replaced_session(
        self, store: Store, clock: ManualClock
    ) -> None:
        session = store.resolve(room(), owner=ME, ttl=Ttl(idle=HOUR)).session.id
        clock.advance(HOUR)
        replacement = store.resolve(room(), owner=ME).session.id

        clock.set_wall(clock.now() - round(HOUR * 1000))

        assert store.session(session, owner=ME).state == "expired"
        found = store.resolve(room(), owner=ME)
        assert (found.how, found.session.id) == ("resumed", replacement)

    def test_a_clock_that_is_set_back_does_not_shorten_a_life(self, store: Store, clock: ManualClock) -> None:
        session = store.resolve(room(), owner=ME, ttl=Ttl(idle=HOUR)).session
        clock.set_wall(clock.now() - round(HOUR * 1000))

        touched = touch(store, session.id, owner=ME)

        assert touched.expires_at == session.expires_at

    def test_an_expiry_is_one_event_when_it_is_noticed(self, store: Store, other: Store, clock: ManualClock) -> None:
        session = store.resolve(room(), owner=ME, ttl=Ttl(idle=HOUR)).session.id
        clock.advance(HOUR)

        store.collect()
        other.collect()
        other.resolve(room(), owner=ME)

        assert bodies_of(store, session) == [event.SessionCreated(), event.SessionExpiredEvent()]

    # --- collecting -------------------------------------------------------------------------------------------------

    def test_collect_counts_the_sessions_it_found_expired(self, store: Store, clock: ManualClock) -> None:
        for _ in range(3):
            store.create(owner=ME, ttl=Ttl(idle=HOUR))
        store.create(owner=STRANGER, ttl=Ttl(absolute=HOUR))
        store.create(owner=ME, ttl=Ttl(idle=2 * HOUR))
        store.create(owner=ME)
        clock.advance(HOUR)

        assert store.collect() == Collected(expired=4)

    def test_collect_counts_nothing_twice(self, store: Store, other: Store, clock: ManualClock) -> None:
        store.create(owner=ME, ttl=Ttl(idle=HOUR))
        replaced = store.resolve(room(), owner=ME, ttl=Ttl(idle=HOUR)).session.id
        clock.advance(HOUR)
        store.resolve(room(), owner=ME)

        counts = [handle.collect().expired for handle in (store, other, store)]

        assert counts == [1, 0, 0]
        assert store.session(replaced, owner=ME).state == "expired"

    def test_collect_counts_any_number_of_sessions_exactly(self, store: Store, clock: ManualClock) -> None:
        for _ in range(205):
            store.create(owner=ME, ttl=Ttl(idle=HOUR))
        clock.advance(HOUR)

        assert store.collect() == Collected(expired=205)
        clock.advance(TICK)
        assert store.collect(keep_closed_for=0) == Collected(deleted=205)
        assert store.about().sessions == 0

    def test_collect_leaves_sessions_alone_in_which_a_turn_runs_or_waits(
        self, store: Store, clock: ManualClock
    ) -> None:
        ttl = Ttl(idle=HOUR)
        running, waiting = store.create(owner=ME, ttl=ttl).id, store.create(owner=ME, ttl=ttl).id
        proof = start(store, running)
        enqueue(store, waiting)
        clock.advance(HOUR)
        store.renew(proof)

        assert store.collect() == Collected()
        assert [store.session(each, owner=ME).state for each in (running, waiting)] == ["open", "open"]

    def test_collect_closes_a_session_one_last_time_with_revision_and_event(
        self, store: Store, clock: ManualClock
    ) -> None:
        before = store.create(owner=ME, ttl=Ttl(idle=HOUR))
        clock.advance(HOUR)

        store.collect()

        after = store.session(before.id, owner=ME)
        assert (after.state, after.ended_at) == ("expired", clock.now())
        assert (after.revision, after.last_event) == (before.revision + 1, before.last_event + 1)

    def test_collect_deletes_nothing_unless_requested(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        store.end(session, owner=ME)
        clock.advance(10 * 365 * 24 * HOUR)

        assert store.collect() == Collected()
        assert store.session(session, owner=ME).state == "ended"

    def test_collect_deletes_sessions_closed_for_longer_than_requested(self, store: Store, clock: ManualClock) -> None:
        ended, living = new_session(store), new_session(store)
        talk(store, ended, 2)
        talk(store, living, 2)
        store.end(ended, owner=ME)

        clock.advance(HOUR)
        early = store.collect(keep_closed_for=HOUR)
        clock.advance(TICK)
        late = store.collect(keep_closed_for=HOUR)

        assert early == Collected()
        assert late == Collected(deleted=1, messages=4)
        assert [session.id for session in store.list(owner=ME).sessions] == [living]

    def test_a_session_that_collect_finds_expired_is_kept_as_long_as_an_ended_one(
        self, store: Store, clock: ManualClock
    ) -> None:
        store.create(owner=ME, ttl=Ttl(idle=HOUR))
        clock.advance(10 * HOUR)

        found = store.collect(keep_closed_for=HOUR)
        clock.advance(HOUR + TICK)
        dropped = store.collect(keep_closed_for=HOUR)

        assert (found, dropped) == (Collected(expired=1), Collected(deleted=1))
