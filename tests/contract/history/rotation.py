"""Compaction: rotates a session to its next window, with a summary of the dropped messages."""

import pytest

from backstay.errors import BackstayError, Conflict, InvalidPayload, LeaseLost, NotFound, SessionBusy, SessionEnded
from backstay.model import message
from backstay.model.content import Text
from backstay.model.event import WindowOpened
from backstay.model.ids import SessionId
from backstay.model.turn import Completed, Rotated
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import LEASE, ContractBase
from tests.contract.builders import (
    ME,
    STRANGER,
    bodies_of,
    enqueue,
    look,
    new_session,
    said_in,
    say,
    start,
    talk,
    texts,
)


def compact(store: Store, session: SessionId, *, keep_from: int, summary: str = "so far") -> Rotated:
    """Compact the current window of the session."""
    window = store.session(session, owner=ME).window
    return store.rotate(session, [message.summary(summary)], owner=ME, parent=window, keep_from=keep_from)


class CompactionContract(ContractBase):
    """A window is compacted once; late messages are kept, and summarised messages stay readable."""

    def test_the_next_window_is_the_summary_and_the_kept_messages(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)

        rotated = compact(store, session, keep_from=4)

        assert texts(store, session) == ["so far", "question 3", "answer 3"]
        assert (rotated.won, rotated.length) == (True, 3)

    def test_the_kept_messages_are_the_same_messages(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)
        kept = [said.id for said in said_in(store, session)[4:]]

        compact(store, session, keep_from=4)

        assert [said.id for said in said_in(store, session)[1:]] == kept

    def test_a_summary_may_be_several_messages(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        window = store.session(session, owner=ME).window
        summary = [message.summary("who"), message.summary("what")]

        store.rotate(session, summary, owner=ME, parent=window, keep_from=3)

        assert [(said.position, said.text) for said in said_in(store, session)] == [
            (0, "who"),
            (1, "what"),
            (2, "answer 2"),
        ]

    def test_everything_can_be_left_behind(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)

        compact(store, session, keep_from=4)
        talk(store, session)

        assert texts(store, session) == ["so far", "question 3", "answer 3"]

    def test_messages_that_arrive_during_the_summary_are_kept(self, store: Store, other: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        looked_at = store.messages(session, owner=ME)
        talk(other, session)

        store.rotate(
            session, [message.summary("so far")], owner=ME, parent=looked_at.window, keep_from=looked_at.length
        )

        assert texts(store, session) == ["so far", "question 3", "answer 3"]

    def test_a_second_compaction_gets_the_window_of_the_first(self, store: Store, other: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        window = store.session(session, owner=ME).window
        first = store.rotate(session, [message.summary("mine")], owner=ME, parent=window, keep_from=4)
        before = look(store, session)

        second = other.rotate(session, [message.summary("yours")], owner=ME, parent=window, keep_from=2)

        assert (second.won, second.window) == (False, first.window)
        assert look(store, session) == before

    def test_a_second_compaction_gets_the_current_window_of_the_session(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        window = store.session(session, owner=ME).window
        compact(store, session, keep_from=2)
        moved = store.undo(session, owner=ME)

        second = store.rotate(session, [message.summary("late")], owner=ME, parent=window, keep_from=2)

        assert (second.won, second.window) == (False, moved.window)

    def test_a_window_has_one_child_by_compaction(self, store: Store, other: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        window = store.session(session, owner=ME).window
        for handle in (store, other, store):
            handle.rotate(session, [message.summary("so far")], owner=ME, parent=window, keep_from=2)

        children = [entry for entry in store.lineage(session, owner=ME) if entry.parent == window]

        assert [child.reason for child in children] == ["compaction"]

    def test_compaction_grows_revision_and_context_and_reports_them(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        before = store.session(session, owner=ME)

        rotated = compact(store, session, keep_from=1)

        after = store.session(session, owner=ME)
        assert (after.revision, after.context) == (before.revision + 1, before.context + 1)
        assert (rotated.revision, rotated.context, rotated.length) == (after.revision, after.context, after.length)
        assert rotated.window.id == after.window

    def test_compaction_writes_an_event_with_window_and_reason(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        first = store.session(session, owner=ME).window

        rotated = compact(store, session, keep_from=1)

        assert bodies_of(store, session)[-1] == WindowOpened(rotated.window.id, first, "compaction", 2)
        assert (rotated.window.parent, rotated.window.reason) == (first, "compaction")
        assert (rotated.window.summarises, rotated.window.summarises_until) == (first, 1)

    def test_compaction_does_not_change_the_preview(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)

        compact(store, session, keep_from=2)

        assert store.session(session, owner=ME).preview == "answer 1"

    def test_a_compaction_that_leaves_nothing_behind_does_nothing(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        before = look(store, session)

        rotated = compact(store, session, keep_from=0)

        assert (rotated.won, rotated.window.id) == (False, before.session.window)
        assert look(store, session) == before

    @pytest.mark.parametrize("keep_from", [-1, 3])
    def test_only_messages_that_are_there_can_be_left_behind(self, store: Store, keep_from: int) -> None:
        session = new_session(store)
        talk(store, session)
        before = look(store, session)

        with pytest.raises(InvalidPayload):
            compact(store, session, keep_from=keep_from)

        assert look(store, session) == before

    def test_a_compaction_without_a_summary_is_refused(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        before = look(store, session)

        with pytest.raises(InvalidPayload):
            store.rotate(session, [], owner=ME, parent=before.session.window, keep_from=1)

        assert look(store, session) == before

    def test_a_summary_has_neither_the_user_nor_the_assistant_role(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        before = look(store, session)

        for speak in (message.user, message.assistant):
            with pytest.raises(InvalidPayload):
                store.rotate(session, [speak("so far")], owner=ME, parent=before.session.window, keep_from=1)

        assert look(store, session) == before

    def test_a_compaction_of_an_old_window_is_rejected(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        window = store.session(session, owner=ME).window
        store.undo(session, owner=ME)
        before = look(store, session)

        with pytest.raises(Conflict):
            store.rotate(session, [message.summary("stale")], owner=ME, parent=window, keep_from=2)

        assert look(store, session) == before

    def test_a_compaction_of_another_sessions_window_is_refused(self, store: Store) -> None:
        session, elsewhere = new_session(store), new_session(store)
        talk(store, session)
        talk(store, elsewhere)
        window = compact(store, elsewhere, keep_from=1).window.parent
        assert window is not None
        before = look(store, session)

        with pytest.raises((Conflict, NotFound)):
            store.rotate(session, [message.summary("whose?")], owner=ME, parent=window, keep_from=1)

        assert look(store, session) == before

    def test_another_owner_cannot_compact(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        window = store.session(session, owner=ME).window

        with pytest.raises(NotFound):
            store.rotate(session, [message.summary("mine")], owner=STRANGER, parent=window, keep_from=1)

    def test_a_session_that_has_ended_is_not_compacted(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        store.end(session, owner=ME)

        with pytest.raises(SessionEnded):
            compact(store, session, keep_from=1)

    def test_a_waiting_turn_starts_in_the_window_that_is_then_read(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        enqueue(store, session, "next")

        compact(store, session, keep_from=4)
        store.claim(["default"])

        assert texts(store, session) == ["so far", "next"]

    # --- within a turn ----------------------------------------------------------------------------------------------

    def test_a_running_turn_compacts_its_session_and_continues_in_the_next_window(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        proof = say(store, start(store, session, "go on"), Text("first half, "))

        rotated = store.rotate(
            session, [message.summary("so far")], owner=ME, parent=proof.window, keep_from=4, turn=proof
        )
        finished = store.finish(rotated.open or proof, Completed(), bodies=[Text("second half")])

        assert rotated.won
        assert texts(store, session) == ["so far", "go on", "first half, second half"]
        assert finished.unbroken

    def test_a_turn_that_compacted_its_session_holds_its_proof_of_the_new_window(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        proof = start(store, session)

        rotated = store.rotate(
            session, [message.summary("so far")], owner=ME, parent=proof.window, keep_from=4, turn=proof
        )

        assert rotated.open is not None
        assert (rotated.open.window, rotated.open.context) == (rotated.window.id, rotated.context)
        assert store.checkpoint(rotated.open, [Text("go on")]).open.window == rotated.window.id

    def test_a_turn_may_compact_more_than_once(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        proof = start(store, session, "go on")

        for keep_from in (4, 1):
            rotated = store.rotate(
                session, [message.summary("so far")], owner=ME, parent=proof.window, keep_from=keep_from, turn=proof
            )
            assert rotated.open is not None
            proof = rotated.open
        store.finish(proof, Completed(), bodies=[Text("done")])

        assert texts(store, session) == ["so far", "go on", "done"]

    def test_a_busy_session_is_not_compacted_without_proof(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        start(store, session)
        before = look(store, session)

        with pytest.raises(SessionBusy):
            compact(store, session, keep_from=1)

        assert look(store, session) == before

    def test_a_holder_that_lost_its_lease_cannot_compact(self, store: Store, other: Store, clock: ManualClock) -> None:
        session = new_session(store)
        talk(store, session)
        proof = start(store, session)
        clock.advance(LEASE + 1)
        other.reap()
        before = look(other, session)

        with pytest.raises(LeaseLost):
            store.rotate(session, [message.summary("late")], owner=ME, parent=proof.window, keep_from=1, turn=proof)

        assert look(other, session) == before

    def test_the_proof_of_one_session_does_not_open_another(self, store: Store) -> None:
        session, elsewhere = new_session(store), new_session(store)
        busy = start(store, session)
        proof = start(store, elsewhere)
        before = look(store, session)

        with pytest.raises(BackstayError):
            store.rotate(session, [message.summary("whose?")], owner=ME, parent=busy.window, keep_from=1, turn=proof)

        assert look(store, session) == before

    def test_a_dead_holder_does_not_keep_its_session_from_being_compacted(self, store: Store, other: Store) -> None:
        session = new_session(store)
        talk(store, session)
        start(other, session, "is anybody there?")
        other.close()

        compact(store, session, keep_from=2)

        assert texts(store, session) == ["so far", "is anybody there?"]

    def test_a_compaction_that_does_nothing_still_ends_the_turn_of_a_dead_holder(
        self, store: Store, other: Store
    ) -> None:
        session = new_session(store)
        talk(store, session)
        start(other, session, "is anybody there?")
        other.close()

        rotated = compact(store, session, keep_from=0)

        assert not rotated.won
        assert store.session(session, owner=ME).running is None
        assert texts(store, session) == ["question 1", "answer 1", "is anybody there?"]
