"""Sessions: found by address, touched, pointed at, and ended."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from backstay.errors import LeaseLost, NothingToDo, SessionEnded
from backstay.model import event, message
from backstay.model.addresses.address import Address
from backstay.model.content import Text
from backstay.model.ids import SessionId
from backstay.model.session import Collected, Ttl
from backstay.model.turn import Cancelled, Completed
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import ContractBase, OpenAnother
from tests.contract.builders import (
    AGENT,
    ME,
    STRANGER,
    bodies_of,
    enqueue,
    look,
    new_session,
    refused,
    room,
    said_in,
    start,
    talk,
    texts,
)

HOUR = 3600.0

Verb = Callable[[Store, SessionId], object]

# Verbs that a closed session rejects.
WRITES: dict[str, Verb] = {
    "point": lambda store, session: store.point(room("elsewhere"), session, owner=ME),
    "submit": lambda store, session: store.submit(session, "more", owner=ME),
    "submit and start": lambda store, session: store.submit(session, "more", owner=ME, start=True),
    "submit to a fork": lambda store, session: store.submit(session, "more", owner=ME, if_busy="fork"),
    "steer": lambda store, session: store.submit(session, "more", owner=ME, if_busy="steer"),
    "record": lambda store, session: store.record(session, [message.user("more")], owner=ME),
    "undo": lambda store, session: store.undo(session, owner=ME),
    "redo": lambda store, session: store.redo(session, owner=ME),
    "retry": lambda store, session: store.retry(session, owner=ME, agent=AGENT),
    "edit": lambda store, session: store.edit(session, said_in(store, session)[0].id, "else", owner=ME, agent=AGENT),
    "rotate": lambda store, session: store.rotate(
        session,
        [message.summary("so far")],
        owner=ME,
        parent=store.session(session, owner=ME).window,
        keep_from=1,
    ),
    "save_draft": lambda store, session: store.save_draft(session, "unfinished", owner=ME),
}
every_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())


class SessionContract(ContractBase):
    """Facts about sessions."""

    # --- resolving an address ---------------------------------------------------------------------------------------

    def test_a_new_address_leads_to_a_created_session(self, store: Store) -> None:
        found = store.resolve(room(), owner=ME)

        assert (found.how, found.generation) == ("created", 1)
        assert (found.session.state, found.session.owner, found.session.length) == ("open", ME, 0)
        assert store.session(found.session.id, owner=ME) == found.session

    def test_a_known_address_leads_to_the_same_session(self, store: Store) -> None:
        first = store.resolve(room(), owner=ME)

        again = store.resolve(room(), owner=ME)

        assert (again.how, again.generation, again.session.id) == ("resumed", 1, first.session.id)

    def test_a_session_is_resumed_from_another_handle(self, store: Store, other: Store) -> None:
        first = store.resolve(room(), owner=ME)

        again = other.resolve(room(), owner=ME)

        assert (again.how, again.session.id) == ("resumed", first.session.id)

    def test_two_addresses_lead_to_two_sessions(self, store: Store) -> None:
        kitchen, cellar = store.resolve(room("kitchen"), owner=ME), store.resolve(room("cellar"), owner=ME)

        assert cellar.how == "created"
        assert cellar.session.id != kitchen.session.id

    def test_two_owners_have_a_session_each_behind_the_same_address(self, store: Store) -> None:
        mine, theirs = store.resolve(room(), owner=ME), store.resolve(room(), owner=STRANGER)

        assert theirs.how == "created"
        assert theirs.session.id != mine.session.id
        assert store.resolve(room(), owner=ME).session.id == mine.session.id

    def test_resolving_an_existing_session_writes_no_event(self, store: Store) -> None:
        first = store.resolve(room(), owner=ME).session

        again = store.resolve(room(), owner=ME).session

        assert (again.revision, again.last_event, again.context) == (first.revision, first.last_event, first.context)
        assert bodies_of(store, first.id) == [event.SessionCreated()]

    def test_a_session_knows_the_address_that_led_to_it(self, store: Store) -> None:
        found = store.resolve(room(), owner=ME).session

        assert store.addresses(found.id, owner=ME) == (room().spelling,)
        assert (found.family, found.place) == (room().family, room().place)

    def test_an_address_that_is_resolved_again_is_not_a_second_address(self, store: Store) -> None:
        session = store.resolve(room(), owner=ME).session.id

        store.resolve(room(), owner=ME)

        assert store.addresses(session, owner=ME) == (room().spelling,)

    def test_lookups_are_one_mark_of_activity_each_second(self, store: Store, other: Store, clock: ManualClock) -> None:
        counts = []
        for handle in (store, other, store, other):
            counts += [handle.resolve(room(), owner=ME).session.activity for _ in range(2)]
            clock.advance(1)

        assert counts == [1, 1, 2, 2, 3, 3, 4, 4]

    def test_a_lookup_within_a_second_of_the_last_use_writes_nothing(self, store: Store, clock: ManualClock) -> None:
        before = store.resolve(room(), owner=ME).session
        clock.advance(0.999)

        version = store.version()
        found = store.resolve(room(), owner=ME)

        assert (found.how, found.generation, found.session) == ("resumed", 1, before)
        assert store.session(before.id, owner=ME) == before
        if store.about().engine == "SQLite":
            assert store.version() == version

    def test_a_lookup_moves_a_session_up_in_the_list(self, store: Store, clock: ManualClock) -> None:
        first = store.resolve(room(), owner=ME).session.id
        second = store.resolve(room("other"), owner=ME).session.id
        clock.advance(1)

        store.resolve(room(), owner=ME)

        assert [one.id for one in store.list(owner=ME).sessions] == [first, second]

    def test_a_lookup_ends_the_turn_of_a_holder_that_is_gone(
        self, store: Store, open_another: OpenAnother, clock: ManualClock
    ) -> None:
        gone = open_another(lease_seconds=0.5)
        session = gone.submit(room(), "hello", owner=ME, start=True).session.id
        clock.advance(0.6)

        found = store.resolve(room(), owner=ME).session

        assert (found.id, found.running, found.turns) == (session, None, 1)

    def test_an_ended_session_is_replaced_by_one_with_the_next_generation(self, store: Store) -> None:
        first = store.resolve(room(), owner=ME).session
        store.end(first.id, owner=ME)

        found = store.resolve(room(), owner=ME)

        assert (found.how, found.generation) == ("replaced", 2)
        assert found.session.id != first.id
        assert (found.session.state, found.session.length, found.session.activity) == ("open", 0, 1)

    def test_every_replacement_is_one_generation(self, store: Store) -> None:
        generations = []
        for _ in range(4):
            found = store.resolve(room(), owner=ME)
            generations.append(found.generation)
            store.end(found.session.id, owner=ME)

        assert generations == [1, 2, 3, 4]

    def test_a_replaced_session_no_longer_has_the_address(self, store: Store) -> None:
        first = store.resolve(room(), owner=ME).session.id
        store.end(first, owner=ME)

        second = store.resolve(room(), owner=ME).session.id

        assert store.addresses(first, owner=ME) == ()
        assert store.addresses(second, owner=ME) == (room().spelling,)

    def test_a_replaced_session_stays_readable(self, store: Store) -> None:
        first = store.resolve(room(), owner=ME).session.id
        talk(store, first, 2)
        store.end(first, owner=ME)

        store.resolve(room(), owner=ME)

        assert texts(store, first) == ["question 1", "answer 1", "question 2", "answer 2"]

    def test_a_workspace_without_a_host_is_one_place_on_this_machine(self, store: Store, other: Store) -> None:
        where = Address.workspace("/srv/project", scope="run 1")

        first, again = store.resolve(where, owner=ME), other.resolve(where, owner=ME)

        assert again.session.id == first.session.id
        assert (first.session.family, first.session.place) == ("workspace", "/srv/project")

    # --- creating, touching -----------------------------------------------------------------------------------------

    def test_a_created_session_has_no_address_and_nothing_in_it(self, store: Store, clock: ManualClock) -> None:
        made = store.create(owner=ME)

        assert store.session(made.id, owner=ME) == made
        assert (made.state, made.length, made.turns, made.waiting, made.running) == ("open", 0, 0, 0, None)
        assert (made.title, made.preview, made.tags, made.pinned, made.archived) == (None, None, (), False, False)
        assert (made.created_at, made.active_at, made.ended_at) == (clock.now(), clock.now(), None)
        assert store.addresses(made.id, owner=ME) == ()

    def test_every_session_is_another(self, store: Store, other: Store) -> None:
        made = {handle.create(owner=ME).id for handle in (store, other) for _ in range(10)}

        assert len(made) == 20

    def test_submitting_and_recording_are_one_mark_of_activity_each(self, store: Store) -> None:
        session = store.resolve(room(), owner=ME).session.id

        store.submit(room(), "one", owner=ME)
        store.submit(session, "two", owner=ME)
        store.record(session, [message.user("three"), message.assistant("four")], owner=ME)

        assert store.session(session, owner=ME).activity == 4

    # --- pointing ---------------------------------------------------------------------------------------------------

    def test_a_pointed_address_leads_to_that_session_from_now_on(self, store: Store) -> None:
        first, second = store.resolve(room(), owner=ME).session.id, new_session(store)

        store.point(room(), second, owner=ME)

        found = store.resolve(room(), owner=ME)
        assert (found.how, found.generation, found.session.id) == ("resumed", 2, second)
        assert store.addresses(first, owner=ME) == ()
        assert store.session(first, owner=ME).state == "open"
        assert bodies_of(store, second)[-1] == event.AddressPointed(room().spelling)

    def test_many_addresses_may_lead_to_one_session(self, store: Store) -> None:
        session = store.resolve(room("kitchen"), owner=ME).session.id

        store.point(room("cellar"), session, owner=ME)

        assert store.resolve(room("kitchen"), owner=ME).session.id == session
        assert store.resolve(room("cellar"), owner=ME).session.id == session
        assert set(store.addresses(session, owner=ME)) == {room("kitchen").spelling, room("cellar").spelling}

    def test_pointing_an_address_does_not_affect_other_owners(self, store: Store) -> None:
        theirs = store.resolve(room(), owner=STRANGER).session.id

        store.point(room(), new_session(store), owner=ME)

        assert store.resolve(room(), owner=STRANGER).session.id == theirs

    # --- ending -----------------------------------------------------------------------------------------------------

    def test_ending_a_session_writes_an_event_and_a_time(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)

        ended = store.end(session, owner=ME)

        assert (ended.state, ended.ended_at) == ("ended", clock.now())
        assert store.session(session, owner=ME) == ended
        assert bodies_of(store, session)[-1] == event.SessionEndedEvent()

    @every_write
    def test_an_ended_session_refuses_writes(self, store: Store, write: Verb) -> None:
        session = new_session(store)
        talk(store, session)
        store.end(session, owner=ME)

        with refused(store, session, SessionEnded):
            write(store, session)

    def test_ending_twice_is_ending_once(self, store: Store, other: Store, clock: ManualClock) -> None:
        session = new_session(store)
        store.end(session, owner=ME)
        before = look(store, session)
        clock.advance(HOUR)

        assert other.end(session, owner=ME) == before.session
        assert look(store, session) == before

    def test_an_ended_session_never_expires(self, store: Store, clock: ManualClock) -> None:
        session = store.create(owner=ME, ttl=Ttl(idle=HOUR)).id
        store.end(session, owner=ME)

        clock.advance(HOUR)

        assert store.collect() == Collected()
        assert store.session(session, owner=ME).state == "ended"

    def test_ending_a_session_cancels_its_running_and_waiting_turns(self, store: Store) -> None:
        session = new_session(store)
        proof = start(store, session)
        store.checkpoint(proof, [Text("half an ans")])
        waiting = enqueue(store, session)
        kept = store.record(session, [message.user("later")], owner=ME).turn

        ended = store.end(session, owner=ME)

        assert (ended.running, ended.holder, ended.waiting) == (None, None, 0)
        for turn in (proof.id, waiting.id, kept.id):
            assert isinstance(store.turn(turn, owner=ME).outcome, Cancelled)
        assert texts(store, session) == ["hello", "half an ans"]

    def test_ending_a_session_takes_it_from_its_holder(self, store: Store) -> None:
        session = new_session(store)
        proof = start(store, session)
        store.end(session, owner=ME)

        with refused(store, session, LeaseLost, proof.id):
            store.finish(proof, Completed())

    def test_nothing_of_an_ended_session_can_be_claimed(self, store: Store) -> None:
        session = new_session(store)
        enqueue(store, session)
        store.end(session, owner=ME)

        assert store.claim([AGENT], session=session, owner=ME) is None
        assert store.claim([AGENT]) is None

    def test_a_turn_of_an_ended_session_can_no_longer_be_changed(self, store: Store) -> None:
        session = new_session(store)
        waiting = enqueue(store, session)
        store.end(session, owner=ME)

        with refused(store, session, NothingToDo, waiting.id):
            store.edit_waiting(waiting.id, "else", owner=ME)
        with refused(store, session, NothingToDo, waiting.id):
            store.withdraw(waiting.id, owner=ME)

    def test_numbers_only_grow(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        steps: list[Callable[[], Any]] = [
            lambda: store.rename(session, "Dinner", owner=ME),
            lambda: store.finish(start(store, session), Completed()),
            lambda: store.cancel(start(store, session).id, owner=ME, take=True),
            lambda: store.undo(session, owner=ME),
            lambda: store.redo(session, owner=ME),
            lambda: store.end(session, owner=ME),
        ]
        seen = [store.session(session, owner=ME)]
        for step in steps:
            step()
            seen.append(store.session(session, owner=ME))

        for earlier, later in pairwise(seen):
            assert later.revision >= earlier.revision
            assert later.context >= earlier.context
            assert later.fence >= earlier.fence
            assert later.last_event >= earlier.last_event
