"""Forks: a new session that begins as another one is, and copies nothing."""

import msgspec
import pytest

from backstay.errors import Conflict, InvalidPayload, NotFound, RequestMismatch
from backstay.model import message
from backstay.model.content import Text, ToolCall, ToolResult
from backstay.model.event import SessionCreated
from backstay.model.session import Ttl
from backstay.model.turn import Completed, Interrupted
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import ContractBase
from tests.contract.builders import (
    ME,
    STRANGER,
    bodies_of,
    enqueue,
    look,
    new_session,
    refused,
    room,
    run,
    said_in,
    say,
    start,
    talk,
    texts,
)
from tests.contract.history.rotation import compact


class ForkContract(ContractBase):
    """Fork is always allowed, does not affect the source, and takes only ended turns."""

    def test_a_fork_reads_what_its_source_reads(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)

        fork = store.fork(session, owner=ME)

        assert said_in(store, fork.id) == said_in(store, session)
        assert (fork.length, fork.source, fork.state) == (4, session, "open")

    def test_a_fork_has_only_the_time_to_live_that_it_is_given(self, store: Store, clock: ManualClock) -> None:
        session = store.create(owner=ME, ttl=Ttl(idle=1.0)).id
        talk(store, session, 1)

        mortal, lasting = store.fork(session, owner=ME, ttl=Ttl(idle=60.0)), store.fork(session, owner=ME)

        assert mortal.expires_at == clock.now() + 60_000
        assert lasting.expires_at is None
        with pytest.raises(InvalidPayload):
            store.fork(session, owner=ME, ttl=Ttl(idle=0))

    def test_a_fork_copies_no_message(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)

        fork = store.fork(session, owner=ME)

        assert [said.id for said in said_in(store, fork.id)] == [said.id for said in said_in(store, session)]

    def test_a_fork_at_a_message_ends_with_that_message(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)

        fork = store.fork(session, owner=ME, at=said_in(store, session)[2].id)

        assert texts(store, fork.id) == ["question 1", "answer 1", "question 2"]
        assert fork.length == 3

    def test_a_fork_at_every_message_ends_with_that_message(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)
        said = said_in(store, session)

        forks = [store.fork(session, owner=ME, at=one.id).id for one in said]

        assert [said_in(store, fork) for fork in forks] == [said[: end + 1] for end in range(len(said))]

    def test_a_fork_at_any_turn_ends_with_its_last_message(self, store: Store) -> None:
        turns = [
            run(store, room(), "look", [ToolCall("c1", "look"), ToolResult("c1"), Text("seen")]).turn,
            run(store, room(), "nobody answers", []).turn,
            run(store, room(), "again", [Text("seen again")]).turn,
        ]
        session = turns[0].session
        turns += talk(store, session, 1)
        store.fold(older_than=0)
        said = said_in(store, session)

        forks = [store.fork(session, owner=ME, at=turn.id).id for turn in turns]

        assert [said_in(store, fork) for fork in forks] == [said[:4], said[:5], said[:7], said]
        # The messages that a fork shares are of turns of its source.
        assert said_in(store, store.fork(forks[2], owner=ME, at=turns[1].id).id) == said[:5]

    def test_a_fork_at_a_compacted_turn_reads_the_messages_up_to_its_end(self, store: Store) -> None:
        session = new_session(store)
        _, second, _ = talk(store, session, 3)
        said = said_in(store, session)
        compact(store, session, keep_from=3)
        compact(store, session, keep_from=3)

        fork = store.fork(session, owner=ME, at=second.id)

        assert said_in(store, fork.id) == said[:4]

    def test_a_fork_at_a_resuming_turn_has_the_output_of_both_turns(self, store: Store) -> None:
        proof = say(store, start(store, room(), "go"), Text("one "))
        store.finish(proof, Interrupted())
        again = store.resume(proof.id, owner=ME)
        store.finish(again, Completed(), bodies=[Text("two")])
        talk(store, proof.session, 1)

        forks = [store.fork(proof.session, owner=ME, at=turn) for turn in (proof.id, again.id)]

        assert [texts(store, fork.id) for fork in forks] == [["go", "one "], ["go", "one ", "two"]]

    def test_a_fork_at_a_running_waiting_undone_or_foreign_turn_is_rejected(self, store: Store) -> None:
        session = new_session(store)
        undone = talk(store, session, 1)[0].id
        store.undo(session, owner=ME)
        running = start(store, session)
        waiting = enqueue(store, session).id
        elsewhere = talk(store, new_session(store), 1)[0].id

        for turn, error in ((running.id, Conflict), (waiting, NotFound), (undone, NotFound), (elsewhere, NotFound)):
            with refused(store, session, error):
                store.fork(session, owner=ME, at=turn)

    def test_a_fork_at_a_compacted_message_reads_the_messages_before_it(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)
        second = said_in(store, session)[3].id
        compact(store, session, keep_from=6)

        fork = store.fork(session, owner=ME, at=second)

        assert texts(store, fork.id) == ["question 1", "answer 1", "question 2", "answer 2"]

    def test_a_fork_of_a_compacted_session_begins_with_the_summary(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        compact(store, session, keep_from=3)

        fork = store.fork(session, owner=ME)

        assert texts(store, fork.id) == ["so far", "answer 2"]

    def test_a_fork_while_a_turn_runs_has_only_the_ended_turns(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        say(store, start(store, session, "still thinking"), Text("hm"))

        fork = store.fork(session, owner=ME)

        assert texts(store, fork.id) == ["question 1", "answer 1"]
        assert fork.running is None

    def test_a_fork_while_the_first_turn_runs_is_empty(self, store: Store) -> None:
        session = new_session(store)
        start(store, session)

        assert store.fork(session, owner=ME).length == 0

    def test_a_fork_while_a_turn_runs_on_after_its_compaction_has_only_the_ended_turns(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        proof = start(store, session, "still thinking")
        store.rotate(session, [message.summary("so far")], owner=ME, parent=proof.window, keep_from=5, turn=proof)

        fork = store.fork(session, owner=ME)

        assert texts(store, fork.id) == ["question 1", "answer 1", "question 2", "answer 2"]

    def test_a_fork_at_a_message_of_the_running_turn_is_refused(self, store: Store) -> None:
        session = new_session(store)
        proof = start(store, session)
        before = look(store, session)

        with pytest.raises(Conflict):
            store.fork(session, owner=ME, at=proof.input.id)

        assert look(store, session) == before

    def test_a_fork_at_an_ended_message_is_possible_while_a_turn_runs(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        start(store, session)

        fork = store.fork(session, owner=ME, at=said_in(store, session)[0].id)

        assert texts(store, fork.id) == ["question 1"]

    def test_a_fork_at_a_message_of_another_session_is_refused(self, store: Store) -> None:
        session, elsewhere = new_session(store), new_session(store)
        talk(store, session)
        talk(store, elsewhere)

        with pytest.raises(NotFound):
            store.fork(session, owner=ME, at=said_in(store, elsewhere)[0].id)

    def test_a_fork_at_a_message_that_was_undone_is_refused(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        undone = said_in(store, session)[0].id
        store.undo(session, owner=ME)

        with pytest.raises(NotFound):
            store.fork(session, owner=ME, at=undone)

    def test_another_owner_cannot_fork(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)

        with pytest.raises(NotFound):
            store.fork(session, owner=STRANGER)

    def test_a_fork_changes_nothing_in_its_source(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        start(store, session)
        enqueue(store, session)
        before = look(store, session)

        store.fork(session, owner=ME)

        assert look(store, session) == msgspec.structs.replace(before, sessions=before.sessions + 1)

    def test_a_fork_inherits_neither_lease_nor_queue(self, store: Store) -> None:
        session = new_session(store)
        start(store, session)
        enqueue(store, session)

        fork = store.fork(session, owner=ME)

        assert (fork.running, fork.holder, fork.waiting, fork.fence) == (None, None, 0, 0)
        assert store.waiting(fork.id, owner=ME) == ()

    def test_a_fork_inherits_no_address(self, store: Store) -> None:
        session = store.resolve(room(), owner=ME).session.id

        fork = store.fork(session, owner=ME)

        assert store.addresses(fork.id, owner=ME) == ()
        assert store.resolve(room(), owner=ME).session.id == session

    def test_a_request_that_was_sent_before_a_fork_is_not_answered_again_in_it(self, store: Store) -> None:
        session = new_session(store)
        first = store.submit(session, "hello", owner=ME, request_id="r1")
        fork = store.fork(session, owner=ME)

        again = store.submit(fork.id, "hello", owner=ME, request_id="r1")

        assert (again.repeated, again.turn.id, again.session.id) == (True, first.turn.id, session)
        with refused(store, fork.id, RequestMismatch):
            store.submit(fork.id, "something else", owner=ME, request_id="r1")

    def test_a_fork_inherits_no_marks(self, store: Store) -> None:
        session = new_session(store)
        store.save_draft(session, "half a thought", owner=ME)

        fork = store.fork(session, owner=ME)

        assert store.marks(fork.id, owner=ME).draft == ""

    def test_a_fork_keeps_the_family_and_place_by_which_lists_are_filtered(self, store: Store) -> None:
        source = store.resolve(room(), owner=ME).session

        fork = store.fork(source.id, owner=ME)

        assert (fork.family, fork.place) == (source.family, source.place) != (None, None)

    def test_a_generated_title_replaces_the_inherited_title_of_a_fork(self, store: Store) -> None:
        session = new_session(store)
        store.rename(session, "Dinner", owner=ME)

        fork = store.fork(session, owner=ME)
        renamed = store.rename(fork.id, "Dinner, with fish", owner=ME, by="agent")

        assert (fork.title, fork.title_by) == ("Dinner", "agent")
        assert renamed.title == "Dinner, with fish"

    def test_a_fork_names_its_source(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)

        fork = store.fork(session, owner=ME)

        assert bodies_of(store, fork.id) == [SessionCreated(session)]

    def test_a_fork_has_a_window_of_its_own_that_names_its_parent(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        source = store.session(session, owner=ME).window

        fork = store.fork(session, owner=ME)

        (window,) = store.lineage(fork.id, owner=ME)
        assert (window.id, window.parent, window.reason, window.start) == (fork.window, source, "fork", 2)

    def test_a_fork_and_its_source_go_separate_ways(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        fork = store.fork(session, owner=ME).id

        store.record(session, [message.user("left")], owner=ME)
        store.record(fork, [message.user("right")], owner=ME)

        assert texts(store, session) == ["question 1", "answer 1", "left"]
        assert texts(store, fork) == ["question 1", "answer 1", "right"]

    def test_a_fork_can_run_a_turn_while_its_source_is_busy(self, store: Store, other: Store) -> None:
        session = new_session(store)
        start(store, session)
        fork = store.fork(session, owner=ME).id

        other.finish(start(other, fork, "hello"), Completed())

        assert texts(store, fork) == ["hello"]

    def test_an_undo_in_a_fork_reaches_shared_messages_and_leaves_the_source_alone(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        fork = store.fork(session, owner=ME).id

        store.undo(fork, owner=ME)

        assert texts(store, fork) == ["question 1", "answer 1"]
        assert store.session(session, owner=ME).length == 4

    def test_an_undo_in_the_source_leaves_the_fork_alone(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        fork = store.fork(session, owner=ME).id

        store.undo(session, owner=ME)
        store.record(session, [message.user("instead")], owner=ME)

        assert texts(store, fork) == ["question 1", "answer 1", "question 2", "answer 2"]

    def test_a_fork_of_a_fork_of_a_fork_reads_it_all(self, store: Store) -> None:
        fork = new_session(store)
        for number in range(4):
            store.record(fork, [message.user(f"level {number}")], owner=ME)
            fork = store.fork(fork, owner=ME).id

        assert texts(store, fork) == [f"level {number}" for number in range(4)]

    def test_an_undo_in_the_fork_goes_behind_a_compaction_of_its_source(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        compact(store, session, keep_from=4)
        fork = store.fork(session, owner=ME).id

        store.undo(fork, owner=ME)

        assert texts(store, fork) == ["question 1", "answer 1"]
        assert texts(store, session) == ["so far"]

    def test_both_a_fork_and_its_source_can_be_compacted(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        fork = store.fork(session, owner=ME).id

        compact(store, session, keep_from=3)
        compact(store, fork, keep_from=2)

        assert texts(store, session) == ["so far", "answer 2"]
        assert texts(store, fork) == ["so far", "question 2", "answer 2"]

    def test_a_session_that_has_ended_can_be_forked(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        store.end(session, owner=ME)

        fork = store.fork(session, owner=ME).id
        talk(store, fork)

        assert store.session(fork, owner=ME).length == 4

    def test_a_session_that_has_expired_can_be_forked_and_the_fork_lives(
        self, store: Store, clock: ManualClock
    ) -> None:
        session = store.create(owner=ME, ttl=Ttl(idle=60)).id
        talk(store, session)
        clock.advance(61)

        fork = store.fork(session, owner=ME)

        assert (fork.state, fork.expires_at, fork.length) == ("open", None, 2)

    def test_an_input_that_finds_the_session_busy_can_go_to_a_fork(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        start(store, session, "still thinking")

        accepted = store.submit(session, "meanwhile", owner=ME, if_busy="fork", start=True)

        assert accepted.forked_from == session
        assert texts(store, accepted.session.id) == ["question 1", "answer 1", "meanwhile"]
        assert accepted.opened is not None
