"""Deletion: everything is removed, except messages that a fork reads; the counts are reported."""

import pytest

from backstay.errors import InvalidPayload, LeaseLost, NotFound
from backstay.model import message
from backstay.model.content import Text, ToolCall
from backstay.model.event import SessionDeleted
from backstay.model.ids import SessionId
from backstay.model.session import Deleted, Ttl
from backstay.model.turn import Completed
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import ContractBase
from tests.contract.builders import (
    ME,
    STRANGER,
    enqueue,
    events_of,
    look,
    new_session,
    room,
    run,
    said_in,
    say,
    start,
    talk,
    texts,
)
from tests.contract.history.rotation import compact


class DeletionContract(ContractBase):
    """The only way to remove messages."""

    # --- gone -------------------------------------------------------------------------------------------------------

    def test_a_deleted_session_is_not_found(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)

        store.delete(session, owner=ME)

        for read in (store.session, store.messages, store.lineage, store.revision, store.waiting, store.marks):
            with pytest.raises(NotFound):
                read(session, owner=ME)

    def test_a_deleted_session_takes_no_writes(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)

        store.delete(session, owner=ME)

        with pytest.raises(NotFound):
            store.submit(session, "hello?", owner=ME)
        with pytest.raises(NotFound):
            store.record(session, [message.user("hello?")], owner=ME)
        with pytest.raises(NotFound):
            store.undo(session, owner=ME)
        with pytest.raises(NotFound):
            store.fork(session, owner=ME)
        with pytest.raises(NotFound):
            store.rename(session, "ghost", owner=ME)

    def test_the_turns_of_a_deleted_session_are_not_found(self, store: Store) -> None:
        session = new_session(store)
        ended, waiting = run(store, session).turn, enqueue(store, session)

        store.delete(session, owner=ME)

        for turn in (ended, waiting):
            with pytest.raises(NotFound):
                store.turn(turn.id, owner=ME)
        assert store.claim(["default"]) is None

    def test_a_session_is_deleted_once(self, store: Store) -> None:
        session = new_session(store)
        store.delete(session, owner=ME)

        with pytest.raises(NotFound):
            store.delete(session, owner=ME)

    def test_another_owner_cannot_delete(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        before = look(store, session)

        with pytest.raises(NotFound):
            store.delete(session, owner=STRANGER)

        assert look(store, session) == before

    def test_the_holder_of_a_deleted_session_has_lost_its_lease(self, store: Store, other: Store) -> None:
        session = new_session(store)
        proof = say(store, start(store, session), Text("hm"), ToolCall("c1", "look"))

        other.delete(session, owner=ME)

        with pytest.raises(LeaseLost):
            store.checkpoint(proof, [Text("too late")])
        with pytest.raises(LeaseLost):
            store.finish(proof, Completed())
        with pytest.raises(LeaseLost):
            store.renew(proof)

    def test_other_sessions_do_not_notice_a_deletion(self, store: Store) -> None:
        gone, stays = new_session(store), new_session(store)
        talk(store, gone, 3)
        talk(store, stays, 3)
        before = look(store, stays)

        store.delete(gone, owner=ME)

        after = look(store, stays)
        assert (after.session, after.messages, after.events) == (before.session, before.messages, before.events)

    def test_a_deleted_request_can_be_made_again(self, store: Store) -> None:
        first = store.submit(room(), "hello", owner=ME, request_id="r1")
        store.delete(first.session.id, owner=ME)

        second = store.submit(room(), "hello", owner=ME, request_id="r1")

        assert not second.repeated
        assert second.session.id != first.session.id

    # --- the tombstone ----------------------------------------------------------------------------------------------

    def test_a_follower_of_a_deleted_session_learns_of_the_deletion(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        seen = events_of(store, session)[-1]

        store.delete(session, owner=ME)

        page = store.events_after(session, seen.cursor, owner=ME)
        assert [event.body for event in page.events] == [SessionDeleted()]
        assert page.events[0].number == seen.number + 1

    def test_only_the_tombstone_is_left_of_the_events(self, store: Store) -> None:
        session = new_session(store)
        run(store, session)

        store.delete(session, owner=ME)

        page = store.events_after(session, owner=ME)
        again = store.events_after(session, page.next, owner=ME)
        assert [event.body for event in page.events] == [SessionDeleted()]
        assert (again.events, again.gap) == ((), None)

    def test_the_tombstone_of_another_owner_is_not_found(self, store: Store) -> None:
        session = new_session(store)
        store.delete(session, owner=ME)

        with pytest.raises(NotFound):
            store.events_after(session, owner=STRANGER)

    # --- the address ------------------------------------------------------------------------------------------------

    def test_the_address_of_a_deleted_session_is_forgotten_and_leads_to_a_new_one(self, store: Store) -> None:
        first = store.resolve(room(), owner=ME)
        store.point(room("porch"), first.session.id, owner=ME)
        talk(store, first.session.id)
        store.delete(first.session.id, owner=ME)

        again = [store.resolve(address, owner=ME) for address in (room(), room("porch"))]

        assert first.session.id not in [resolved.session.id for resolved in again]
        assert [(resolved.how, resolved.generation, resolved.session.length) for resolved in again] == [
            ("created", 1, 0),
            ("created", 1, 0),
        ]

    def test_an_address_pointed_elsewhere_before_the_deletion_keeps_its_session(self, store: Store) -> None:
        first, second = store.resolve(room(), owner=ME).session.id, new_session(store)
        store.point(room(), second, owner=ME)

        store.delete(first, owner=ME)

        assert store.resolve(room(), owner=ME).session.id == second

    # --- counts -----------------------------------------------------------------------------------------------------

    def test_a_deletion_counts_exactly_the_deleted_rows(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        run(store, session, "hello", "hi")
        store.undo(session, owner=ME)
        compact(store, session, keep_from=2)
        enqueue(store, session)
        events = store.session(session, owner=ME).last_event

        deleted = store.delete(session, owner=ME)

        assert deleted == Deleted(messages=7, turns=4, events=events, windows=3, blobs=0, kept_messages=0)

    def test_deleting_an_empty_session_counts_its_window_and_its_first_event(self, store: Store) -> None:
        deleted = store.delete(new_session(store), owner=ME)

        assert deleted == Deleted(messages=0, turns=0, events=1, windows=1, blobs=0, kept_messages=0)

    def test_data_that_a_fork_keeps_is_reported(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)
        store.fork(session, owner=ME, at=said_in(store, session)[3].id)

        deleted = store.delete(session, owner=ME)

        assert (deleted.messages, deleted.kept_messages) == (2, 4)

    def test_the_rest_goes_with_the_last_fork(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)
        forks = [store.fork(session, owner=ME, at=said_in(store, session)[end].id).id for end in (1, 3)]

        counts = [store.delete(one, owner=ME) for one in (session, forks[1], forks[0])]

        assert [(count.messages, count.kept_messages) for count in counts] == [(2, 4), (2, 2), (2, 0)]

    def test_nothing_is_left_over_when_a_whole_family_is_gone(self, store: Store) -> None:
        family = _family(store)
        said = {one.id for session in family for window in _windows(store, session) for one in window}

        counts = [store.delete(session, owner=ME) for session in family]

        assert sum(count.messages for count in counts) == len(said)
        assert counts[-1].kept_messages == 0
        assert store.index() == 0

    # --- forks ------------------------------------------------------------------------------------------------------

    def test_a_surviving_fork_reads_exactly_what_it_read_before(self, store: Store) -> None:
        family = _family(store)
        source, forks = family[0], family[1:]
        before = [look(store, fork) for fork in forks]
        windows = [_windows(store, fork) for fork in forks]

        store.delete(source, owner=ME)

        for fork, seen, read in zip(forks, before, windows, strict=True):
            after = look(store, fork)
            assert (after.session, after.messages, after.events) == (seen.session, seen.messages, seen.events)
            assert after.lineage == seen.lineage
            assert _windows(store, fork) == read

    def test_remaining_forks_stay_readable_in_any_order_of_deletions(self, store: Store) -> None:
        family = _family(store)
        order = [family[at] for at in (2, 0, 3, 1, 4)]
        for position, gone in enumerate(order):
            survivors = order[position + 1 :]
            before = [_windows(store, session) for session in survivors]

            store.delete(gone, owner=ME)

            assert [_windows(store, session) for session in survivors] == before

    def test_a_fork_of_a_deleted_session_continues(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)
        fork = store.fork(session, owner=ME).id
        store.delete(session, owner=ME)

        store.undo(fork, owner=ME)
        undone = texts(store, fork)
        store.redo(fork, owner=ME)
        compact(store, fork, keep_from=4)
        again = store.fork(fork, owner=ME).id
        talk(store, again)

        assert undone == ["question 1", "answer 1", "question 2", "answer 2"]
        assert texts(store, fork) == ["so far", "question 3", "answer 3"]
        assert len(texts(store, again)) == 5

    def test_a_fork_of_a_deleted_session_still_reaches_behind_its_compaction(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        compact(store, session, keep_from=4)
        fork = store.fork(session, owner=ME).id
        store.delete(session, owner=ME)

        store.undo(fork, owner=ME)

        assert texts(store, fork) == ["question 1", "answer 1"]

    def test_a_turn_from_a_deleted_session_is_retried_by_an_agent_that_is_named(self, store: Store) -> None:
        session = new_session(store)
        run(store, session, "hello", "hi")
        fork = store.fork(session, owner=ME).id
        store.delete(session, owner=ME)

        store.retry(fork, owner=ME, agent="poet", start=True)

        assert texts(store, fork) == ["hello"]

    def test_the_agent_of_a_turn_from_a_deleted_session_is_asked_for_not_guessed(self, store: Store) -> None:
        session = new_session(store)
        run(store, session, "hello", "hi")
        fork = store.fork(session, owner=ME).id
        store.delete(session, owner=ME)
        asked, before = said_in(store, fork)[0].id, look(store, fork)

        with pytest.raises(InvalidPayload):
            store.retry(fork, owner=ME)
        with pytest.raises(InvalidPayload):
            store.edit(fork, asked, "hey", owner=ME)

        assert look(store, fork) == before

    def test_deleting_a_fork_leaves_its_source_alone(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        fork = store.fork(session, owner=ME).id
        talk(store, fork)
        before = look(store, session)

        deleted = store.delete(fork, owner=ME)

        after = look(store, session)
        assert (deleted.messages, deleted.kept_messages) == (2, 0)
        assert (after.session, after.messages, after.events) == (before.session, before.messages, before.events)

    def test_a_fork_whose_source_is_gone_outlives_a_fork_of_its_own(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        fork = store.fork(session, owner=ME).id
        talk(store, fork)
        again = store.fork(fork, owner=ME).id
        before = said_in(store, fork)

        store.delete(session, owner=ME)
        store.delete(again, owner=ME)

        assert said_in(store, fork) == before

    def test_a_window_of_many_segments_survives_the_deletion_of_its_source(self, store: Store) -> None:
        session = new_session(store)
        for number in range(70):
            store.record(session, [message.user(f"kept {number}")], owner=ME)
            store.record(session, [message.user("undone")], owner=ME)
            store.undo(session, owner=ME)
        fork = store.fork(session, owner=ME).id

        deleted = store.delete(session, owner=ME)

        assert (deleted.messages, deleted.kept_messages) == (70, 70)
        assert texts(store, fork) == [f"kept {number}" for number in range(70)]

    def test_messages_of_a_compacted_window_that_no_fork_reaches_are_deleted(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)
        compact(store, session, keep_from=2)
        store.undo(session, owner=ME)
        fork = store.fork(session, owner=ME).id

        deleted = store.delete(session, owner=ME)

        assert (deleted.messages, deleted.kept_messages) == (2, 5)
        assert texts(store, fork) == ["so far", "question 2", "answer 2"]

    # --- collected --------------------------------------------------------------------------------------------------

    def test_sessions_closed_for_long_enough_are_collected_and_counted(self, store: Store, clock: ManualClock) -> None:
        closed, young, open_one = new_session(store), new_session(store), new_session(store)
        for session in (closed, young, open_one):
            talk(store, session)
        store.end(closed, owner=ME)
        clock.advance(100)
        store.end(young, owner=ME)
        clock.advance(50)

        collected = store.collect(keep_closed_for=100)

        assert (collected.expired, collected.deleted, collected.messages) == (0, 1, 2)
        assert {session.id for session in store.list(owner=ME).sessions} == {young, open_one}

    def test_expired_sessions_are_collected_after_the_grace_time(self, store: Store, clock: ManualClock) -> None:
        session = store.create(owner=ME, ttl=Ttl(idle=10)).id
        talk(store, session)
        clock.advance(11)
        first = store.collect(keep_closed_for=60)
        clock.advance(61)

        second = store.collect(keep_closed_for=60)

        assert (first.expired, first.deleted) == (1, 0)
        assert (second.expired, second.deleted, second.messages) == (0, 1, 2)

    def test_without_a_time_nothing_is_ever_deleted_by_collecting(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        store.end(session, owner=ME)
        clock.advance(1_000_000_000)

        assert store.collect().deleted == 0
        assert store.session(session, owner=ME).state == "ended"


def _family(store: Store) -> list[SessionId]:
    """A session and four forks that share nearly everything, including undone and compacted messages."""
    source = new_session(store)
    talk(store, source, 3)
    at_two = store.fork(source, owner=ME, at=said_in(store, source)[2].id).id
    store.undo(source, owner=ME)
    talk(store, source)
    compact(store, source, keep_from=3)
    talk(store, source)
    at_head = store.fork(source, owner=ME).id
    talk(store, at_head)
    store.undo(at_head, owner=ME)
    of_fork = store.fork(at_head, owner=ME).id
    talk(store, of_fork, 2)
    compact(store, of_fork, keep_from=4)
    behind = store.fork(of_fork, owner=ME, at=store.messages(source, owner=ME, last=1).messages[0].id).id
    talk(store, at_two)
    return [source, at_two, at_head, of_fork, behind]


def _windows(store: Store, session: SessionId) -> list[tuple[message.Message, ...]]:
    """Every message of every window of a session."""
    return [store.messages(session, owner=ME, window=window.id).messages for window in store.lineage(session, owner=ME)]
