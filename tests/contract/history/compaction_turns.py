"""Compaction turns: a window is summarised in a turn, so that no other turn runs meanwhile."""

import pytest

from backstay.errors import (
    Conflict,
    HistoryChanged,
    InvalidPayload,
    LeaseLost,
    NotFound,
    NothingToDo,
    SessionBusy,
    SessionEnded,
)
from backstay.model import event, message
from backstay.model.content import Text, Usage
from backstay.model.ids import SessionId
from backstay.model.turn import COMPACTOR, Cancelled, Completed, Failed, Finished, Interrupted, OpenTurn, Rotated
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import LEASE, ContractBase
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
    say,
    start,
    talk,
    texts,
)


def begin(store: Store, session: SessionId) -> OpenTurn:
    """Open a compaction in an idle session; returns its proof."""
    opened = store.compact(session, owner=ME).opened
    assert opened is not None, "nobody speaks here, so the compaction starts"
    return opened


def rotate(store: Store, proof: OpenTurn, keep_from: int, *summary: str) -> Rotated:
    """Rotate the session of this proof."""
    said = [message.summary(text) for text in summary or ("so far",)]
    return store.rotate(proof.session, said, owner=ME, parent=proof.window, keep_from=keep_from, turn=proof)


def held(rotated: Rotated) -> OpenTurn:
    """The proof of the turn that rotated its session."""
    assert rotated.open is not None
    return rotated.open


def follows(finished: Finished) -> OpenTurn:
    """The turn that was opened by the end of another."""
    assert finished.opened is not None
    return finished.opened


class CompactingContract(ContractBase):
    """Facts about compactions as turns."""

    # --- the turn ---------------------------------------------------------------------------------------------------

    def test_a_compaction_is_a_turn_without_input(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        before = look(store, session)

        compacting = store.compact(session, owner=ME)

        assert compacting.opened is not None
        assert (compacting.turn.id, compacting.turn.agent, compacting.turn.state) == (
            compacting.opened.id,
            COMPACTOR,
            "running",
        )
        assert said_in(store, session) == before.messages
        assert bodies_of(store, session)[len(before.events) :] == [event.TurnStarted(COMPACTOR)]
        after = store.session(session, owner=ME)
        assert (after.running, after.holder) == (compacting.turn.id, store.worker)
        assert (after.revision, after.context) == (before.session.revision + 1, before.session.context)
        assert compacting.opened.found == compacting.opened.context == before.session.context

    def test_a_compaction_moves_its_session_and_ends_with_a_report(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)
        turns = store.session(session, owner=ME).turns

        proof = held(rotate(store, begin(store, session), 4))
        finished = store.finish(
            proof, Completed("4 messages became 1"), bodies=[Usage(input_tokens=7, output_tokens=2)]
        )

        assert texts(store, session) == ["so far", "question 3", "answer 3"]
        assert (finished.turn.outcome, finished.messages, finished.unbroken) == (
            Completed("4 messages became 1"),
            (),
            True,
        )
        assert finished.turn.usage == Usage(input_tokens=7, output_tokens=2)
        opened = [body for body in bodies_of(store, session) if isinstance(body, event.WindowOpened)]
        assert [body.reason for body in opened] == ["compaction"]
        assert store.session(session, owner=ME).turns == turns, "nobody said anything in it"

    def test_the_window_is_opened_in_the_name_of_the_compaction(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)

        proof = begin(store, session)
        rotate(store, proof, 1)

        told_of = store.events_after(session, owner=ME).events[-1]
        assert isinstance(told_of.body, event.WindowOpened)
        assert told_of.turn == proof.id

    def test_a_compaction_that_is_under_way_is_named_and_nothing_is_written(self, store: Store, other: Store) -> None:
        session = new_session(store)
        talk(store, session)
        proof = begin(store, session)
        before = look(store, session, (proof.id,))

        for handle in (store, other):
            again = handle.compact(session, owner=ME)
            assert (again.turn.id, again.opened) == (proof.id, None)

        assert look(store, session, (proof.id,)) == before

    def test_a_window_that_changed_since_it_was_read_is_not_compacted(self, store: Store, other: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        long = store.messages(session, owner=ME)
        proof = held(rotate(other, begin(other, session), 2))
        other.finish(proof, Completed("2 messages became 1"))

        with refused(store, session, HistoryChanged):
            store.compact(session, owner=ME, seen=long)
        short = store.messages(session, owner=ME)
        talk(store, session)
        with refused(store, session, HistoryChanged):
            store.compact(session, owner=ME, seen=short)

        assert store.compact(session, owner=ME, seen=store.messages(session, owner=ME, last=1)).opened is not None

    def test_a_busy_session_is_not_compacted(self, store: Store, other: Store) -> None:
        session = new_session(store)
        talk(store, session)
        proof = start(store, session)

        with refused(store, session, SessionBusy, proof.id):
            other.compact(session, owner=ME)

    def test_a_session_with_nothing_in_it_is_not_compacted(self, store: Store) -> None:
        session = new_session(store)

        with refused(store, session, NothingToDo):
            store.compact(session, owner=ME)

    def test_only_an_open_session_of_the_same_owner_is_compacted(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)

        with pytest.raises(NotFound):
            store.compact(session, owner=STRANGER)
        store.end(session, owner=ME)
        with refused(store, session, SessionEnded):
            store.compact(session, owner=ME)

    def test_waiting_turns_do_not_prevent_a_compaction(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        waiting = enqueue(store, session, "later")

        proof = held(rotate(store, begin(store, session), 2))
        finished = store.finish(proof, Completed(), agents=[AGENT])

        assert follows(finished).id == waiting.id
        assert texts(store, session) == ["so far", "later"]

    def test_the_compactors_name_is_not_an_agent(self, store: Store) -> None:
        session = new_session(store)

        with refused(store, session, InvalidPayload):
            store.submit(session, "compact yourself", owner=ME, agent=COMPACTOR)

    # --- meanwhile --------------------------------------------------------------------------------------------------

    def test_an_input_sent_during_a_compaction_starts_in_the_next_window(self, store: Store, other: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        proof = begin(store, session)

        sent = other.submit(session, "and now?", owner=ME, start=True)
        other.record(session, [message.user("a note")], owner=ME)

        assert (sent.opened, sent.turn.state) == (None, "waiting")
        proof = held(rotate(store, proof, 4))
        finished = store.finish(proof, Completed(), agents=[AGENT])
        assert follows(finished).window == proof.window
        store.finish(follows(finished), Completed(), bodies=[Text("now")])
        assert texts(store, session) == ["so far", "and now?", "now", "a note"]

    def test_steering_during_a_compaction_runs_next(self, store: Store, other: Store) -> None:
        session = new_session(store)
        talk(store, session)
        proof = begin(store, session)
        steering = other.submit(session, "quick!", owner=ME, if_busy="steer").turn

        finished = store.finish(proof, Completed(), agents=[AGENT])

        assert follows(finished).id == steering.id
        assert texts(store, session) == ["question 1", "answer 1", "quick!"]

    def test_a_replacing_input_stops_the_compaction(self, store: Store, other: Store) -> None:
        session = new_session(store)
        talk(store, session)
        proof = begin(store, session)

        other.submit(session, "this instead", owner=ME, if_busy="replace")

        assert store.renew(proof).inbox.cancel
        finished = store.finish(proof, Cancelled("asked to"), agents=[AGENT])
        assert follows(finished).input.text == "this instead"

    def test_inputs_with_reject_are_rejected_during_a_compaction(self, store: Store, other: Store) -> None:
        session = new_session(store)
        talk(store, session)
        proof = begin(store, session)

        with refused(store, session, SessionBusy, proof.id):
            other.submit(session, "only me", owner=ME, if_busy="reject")
        with refused(store, session, SessionBusy, proof.id):
            other.record(session, [message.user("only me")], owner=ME, if_busy="reject")

    def test_a_fork_during_a_compaction_begins_with_all_messages(self, store: Store, other: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        begin(store, session)

        accepted = other.submit(session, "over here", owner=ME, if_busy="fork", start=True)

        assert accepted.forked_from == session
        assert texts(store, accepted.session.id) == ["question 1", "answer 1", "question 2", "answer 2", "over here"]
        assert texts(store, other.fork(session, owner=ME).id) == texts(store, session)

    def test_history_cannot_be_changed_during_a_compaction(self, store: Store, other: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        proof = begin(store, session)
        first = said_in(store, session)[0].id

        with refused(store, session, SessionBusy, proof.id):
            other.undo(session, owner=ME)
        with refused(store, session, SessionBusy, proof.id):
            other.redo(session, owner=ME)
        with refused(store, session, SessionBusy, proof.id):
            other.retry(session, owner=ME, agent=AGENT)
        with refused(store, session, SessionBusy, proof.id):
            other.edit(session, first, "otherwise", owner=ME, agent=AGENT)
        with refused(store, session, SessionBusy, proof.id):
            other.rotate(session, [message.summary("mine")], owner=ME, parent=proof.window, keep_from=1)

    # --- its end ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("outcome", [Cancelled("asked to"), Failed("no network"), Interrupted("stopped")])
    def test_a_compaction_that_does_not_complete_leaves_the_window_as_it_was(
        self, store: Store, outcome: Cancelled | Failed | Interrupted
    ) -> None:
        session = new_session(store)
        talk(store, session, 2)
        before = look(store, session)

        finished = store.finish(begin(store, session), outcome)

        assert finished.turn.outcome == outcome
        after = look(store, session)
        assert (after.messages, after.lineage) == (before.messages, before.lineage)
        assert (after.session.window, after.session.context) == (before.session.window, before.session.context)
        assert bodies_of(store, session)[-1] == event.TurnEnded(outcome)

    def test_a_compaction_can_be_cancelled_and_taken(self, store: Store, other: Store) -> None:
        session = new_session(store)
        talk(store, session)
        proof = begin(store, session)

        other.cancel(proof.id, owner=ME)
        assert store.inbox(proof).cancel
        turn = other.cancel(proof.id, owner=ME, take=True)

        assert isinstance(turn.outcome, Cancelled)
        with pytest.raises(LeaseLost):
            rotate(store, proof, 1)
        assert texts(store, session) == ["question 1", "answer 1"]

    def test_the_compaction_of_a_dead_holder_is_interrupted_and_the_old_window_stands(
        self, store: Store, other: Store
    ) -> None:
        session = new_session(store)
        talk(store, session, 2)
        before = look(store, session)
        proof = begin(other, session)
        enqueue(store, session, "still there?")
        other.close()

        claimed = store.claim([AGENT])

        assert isinstance(store.turn(proof.id, owner=ME).outcome, Interrupted)
        assert claimed is not None
        assert claimed.window == before.session.window
        assert texts(store, session) == [*(said.text for said in before.messages), "still there?"]

    def test_a_holder_that_slept_through_its_compaction_moves_nothing(
        self, store: Store, other: Store, clock: ManualClock
    ) -> None:
        session = new_session(store)
        talk(store, session, 2)
        slow = begin(store, session)
        clock.advance(LEASE + 1)
        quick = begin(other, session)
        assert quick.fence > slow.fence

        with refused(other, session, LeaseLost, slow.id, quick.id):
            rotate(store, slow, 2)
        with refused(other, session, LeaseLost, slow.id, quick.id):
            store.finish(slow, Completed())

        assert isinstance(other.turn(slow.id, owner=ME).outcome, Interrupted)
        assert other.finish(held(rotate(other, quick, 2)), Completed()).unbroken

    def test_an_interrupted_compaction_is_neither_claimed_nor_resumed(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        proof = begin(store, session)

        assert not store.has_work([COMPACTOR, AGENT])
        assert store.claim([COMPACTOR, AGENT]) is None
        store.finish(proof, Interrupted("stopped"))

        assert store.interrupted([COMPACTOR, AGENT]) == ()
        with refused(store, session, NothingToDo, proof.id):
            store.resume(proof.id, owner=ME)
        assert store.claim([COMPACTOR, AGENT]) is None

    def test_an_ended_compaction_is_not_undone_but_the_turn_before_it_is(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)
        store.finish(held(rotate(store, begin(store, session), 4)), Completed())

        store.undo(session, owner=ME)
        assert texts(store, session) == ["so far"]
        store.undo(session, owner=ME)

        assert texts(store, session) == ["question 1", "answer 1"]

    def test_a_session_that_ends_takes_its_compaction_with_it(self, store: Store, other: Store) -> None:
        session = new_session(store)
        talk(store, session)
        proof = begin(store, session)

        other.end(session, owner=ME)

        assert isinstance(other.turn(proof.id, owner=ME).outcome, Cancelled)
        with pytest.raises(LeaseLost):
            store.finish(proof, Completed())

    # --- at the end of a turn ---------------------------------------------------------------------------------------

    def test_waiting_turns_run_after_the_compaction_that_a_turn_opens(self, store: Store, other: Store) -> None:
        session = new_session(store)
        proof = start(store, session, "first")
        enqueue(other, session, "second")

        finished = store.finish(proof, Completed(), bodies=[Text("done")], agents=[AGENT], compact=True)

        compaction = follows(finished)
        assert (compaction.agent, compaction.holder) == (COMPACTOR, store.worker)
        assert store.session(session, owner=ME).running == compaction.id
        assert texts(store, session) == ["first", "done"]
        after = store.finish(held(rotate(store, compaction, 1)), Completed(), agents=[AGENT])
        assert follows(after).input.text == "second"
        assert texts(store, session) == ["so far", "done", "second"]

    def test_no_turn_starts_between_a_turn_and_its_compaction(self, store: Store, other: Store) -> None:
        proof = start(store, room())

        finished = store.finish(proof, Completed(), bodies=[Text("done")], compact=True)

        started = other.submit(room(), "me?", owner=ME, start=True)
        assert started.opened is None
        assert follows(finished).fence == store.session(proof.session, owner=ME).fence > proof.fence

    # --- resuming ---------------------------------------------------------------------------------------------------

    def test_a_turn_whose_input_was_compacted_away_is_not_resumed(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        proof = say(store, start(store, session, "go on"), Text("half"))
        store.finish(proof, Interrupted("stopped"))
        store.finish(held(rotate(store, begin(store, session), 3)), Completed())

        with refused(store, session, Conflict, proof.id):
            store.resume(proof.id, owner=ME)

    def test_a_turn_whose_input_was_kept_is_resumed_in_the_next_window(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        proof = say(store, start(store, session, "go on"), Text("half"))
        store.finish(proof, Interrupted("stopped"))
        store.finish(held(rotate(store, begin(store, session), 2)), Completed())

        resumed = store.resume(proof.id, owner=ME)

        assert (resumed.input.text, resumed.input.position) == ("go on", 1)
        assert resumed.found == resumed.context == store.session(session, owner=ME).context
