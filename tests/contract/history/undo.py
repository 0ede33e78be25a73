"""Undo and redo: a turn is removed as a unit, and restored unchanged."""

import pytest

from backstay.errors import NothingToDo, RevisionMismatch, SessionBusy, SessionEnded
from backstay.model import message
from backstay.model.content import Text, ToolCall, ToolResult
from backstay.model.event import WindowOpened
from backstay.model.turn import Completed
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import LEASE, ContractBase
from tests.contract.builders import ME, bodies_of, enqueue, look, new_session, run, said_in, say, start, talk, texts
from tests.contract.history.rotation import compact


class UndoContract(ContractBase):
    """Undo opens a window from before the last turn; redo goes back to the window that was left."""

    # --- undo -------------------------------------------------------------------------------------------------------

    def test_undo_takes_back_the_question_the_tools_and_the_answer_of_one_turn(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        proof = start(store, session, "look it up")
        proof = say(store, proof, Text("one moment"), ToolCall("c1", "search"))
        store.finish(proof, Completed(), bodies=[ToolResult("c1", "found"), Text("here it is")])

        moved = store.undo(session, owner=ME)

        assert texts(store, session) == ["question 1", "answer 1"]
        assert moved.length == 2

    def test_undo_takes_back_all_messages_that_were_recorded_together(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        store.record(session, [message.user("a"), message.user("b"), message.assistant("c")], owner=ME)

        store.undo(session, owner=ME)

        assert texts(store, session) == ["question 1", "answer 1"]

    def test_undo_takes_back_a_steering_input_with_the_turn_that_took_it(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        proof = start(store, session, "count")
        store.submit(session, "faster", owner=ME, if_busy="steer")
        taken = store.checkpoint(proof, [Text("one")], take_steering=True)
        store.finish(taken.open, Completed(), bodies=[Text("two")])
        assert texts(store, session) == ["question 1", "answer 1", "count", "one", "faster", "two"]

        store.undo(session, owner=ME)

        assert texts(store, session) == ["question 1", "answer 1"]

    def test_undo_takes_back_the_output_of_an_interrupted_turn(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        talk(store, session)
        say(store, start(store, session, "and then?"), Text("half an ans"))
        clock.advance(LEASE + 1)

        store.undo(session, owner=ME)

        assert texts(store, session) == ["question 1", "answer 1"]

    def test_each_undo_takes_back_one_turn(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)

        lengths = [store.undo(session, owner=ME).length for _ in range(3)]

        assert lengths == [4, 2, 0]
        assert texts(store, session) == []

    def test_identical_turns_are_taken_back_one_by_one(self, store: Store) -> None:
        session = new_session(store)
        for _ in range(3):
            store.record(session, [message.user("again")], owner=ME)

        store.undo(session, owner=ME)

        assert texts(store, session) == ["again", "again"]

    def test_undo_with_nothing_to_undo_is_refused_and_changes_nothing(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        store.undo(session, owner=ME)
        before = look(store, session)

        with pytest.raises(NothingToDo):
            store.undo(session, owner=ME)

        assert look(store, session) == before

    def test_a_new_session_has_nothing_to_undo(self, store: Store) -> None:
        with pytest.raises(NothingToDo):
            store.undo(new_session(store), owner=ME)

    def test_undo_is_refused_while_a_turn_runs(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        start(store, session)
        before = look(store, session)

        with pytest.raises(SessionBusy):
            store.undo(session, owner=ME)

        assert look(store, session) == before

    def test_undo_is_refused_while_a_turn_waits(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        enqueue(store, session)
        before = look(store, session)

        with pytest.raises(SessionBusy):
            store.undo(session, owner=ME)

        assert look(store, session) == before

    def test_undo_is_refused_once_the_session_has_ended(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        store.end(session, owner=ME)

        with pytest.raises(SessionEnded):
            store.undo(session, owner=ME)

    def test_undo_of_a_session_that_changed_since_the_caller_looked_is_refused(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        seen = store.revision(session, owner=ME)
        talk(store, session)
        before = look(store, session)

        with pytest.raises(RevisionMismatch):
            store.undo(session, owner=ME, expect_revision=seen)

        assert look(store, session) == before
        assert store.undo(session, owner=ME, expect_revision=before.session.revision).length == 2

    def test_undo_grows_revision_and_context_and_reports_them(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        before = store.session(session, owner=ME)

        moved = store.undo(session, owner=ME)

        after = store.session(session, owner=ME)
        assert (after.revision, after.context) == (before.revision + 1, before.context + 1)
        assert (moved.revision, moved.context, moved.length) == (after.revision, after.context, after.length)
        assert moved.window.id == after.window != before.window

    def test_an_append_of_equal_length_after_an_undo_has_another_context(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        before = store.session(session, owner=ME)

        store.undo(session, owner=ME)
        talk(store, session)

        after = store.session(session, owner=ME)
        assert after.length == before.length
        assert after.context > before.context
        assert after.window != before.window

    def test_undo_writes_an_event_with_window_and_reason(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        first = store.session(session, owner=ME).window

        moved = store.undo(session, owner=ME)

        assert bodies_of(store, session)[-1] == WindowOpened(moved.window.id, first, "undo", 2)
        assert (moved.window.reason, moved.window.parent, moved.window.start) == ("undo", first, 2)

    def test_undone_messages_can_still_be_read_in_the_old_window(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        left, said = store.session(session, owner=ME).window, said_in(store, session)

        store.undo(session, owner=ME)
        talk(store, session)

        assert store.messages(session, owner=ME, window=left).messages == said

    def test_undo_by_one_holder_is_seen_by_the_other(self, store: Store, other: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)

        other.undo(session, owner=ME)

        assert texts(store, session) == ["question 1", "answer 1"]

    def test_undo_ends_the_turn_of_a_dead_holder_and_then_takes_it_back(self, store: Store, other: Store) -> None:
        session = new_session(store)
        talk(store, session)
        start(other, session, "is anybody there?")
        other.close()

        store.undo(session, owner=ME)

        assert texts(store, session) == ["question 1", "answer 1"]

    def test_a_turn_that_was_undone_still_counts_among_the_turns(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)

        store.undo(session, owner=ME)

        assert store.session(session, owner=ME).turns == 2

    def test_after_an_undo_the_list_shows_the_preview_from_before_the_turn(self, store: Store) -> None:
        session = new_session(store)
        run(store, session, "find it", [ToolCall("c1", "search"), ToolResult("c1", "found")])
        before = store.session(session, owner=ME).preview
        talk(store, session)

        store.undo(session, owner=ME)

        assert store.session(session, owner=ME).preview == before

    def test_a_session_that_was_undone_to_nothing_has_no_preview(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)

        store.undo(session, owner=ME)

        assert store.session(session, owner=ME).preview is None

    # --- undo across a compaction -----------------------------------------------------------------------------------

    def test_a_turn_that_a_compaction_cut_in_two_is_undone_as_a_whole(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)
        compact(store, session, keep_from=5)
        assert texts(store, session) == ["so far", "answer 3"]

        store.undo(session, owner=ME)

        assert texts(store, session) == ["question 1", "answer 1", "question 2", "answer 2"]

    def test_undo_reaches_behind_a_summary_when_nothing_else_is_left(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        compact(store, session, keep_from=4)
        assert texts(store, session) == ["so far"]

        store.undo(session, owner=ME)

        assert texts(store, session) == ["question 1", "answer 1"]

    def test_undo_of_the_kept_tail_leaves_the_summary_and_the_next_undo_goes_behind_it(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)
        compact(store, session, keep_from=4)

        store.undo(session, owner=ME)
        kept = texts(store, session)
        store.undo(session, owner=ME)

        assert kept == ["so far"]
        assert texts(store, session) == ["question 1", "answer 1"]

    def test_undo_goes_behind_several_compactions(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        compact(store, session, keep_from=4)
        compact(store, session, keep_from=1)
        compact(store, session, keep_from=1)

        store.undo(session, owner=ME)

        assert texts(store, session) == ["question 1", "answer 1"]

    def test_undo_goes_behind_more_compactions_than_a_stack_is_deep(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        for _ in range(1_100):
            compact(store, session, keep_from=store.session(session, owner=ME).length)

        store.undo(session, owner=ME)

        assert texts(store, session) == ["question 1", "answer 1"]

    def test_a_turn_that_was_compacted_while_it_ran_is_undone_as_a_whole(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        proof = start(store, session, "go on")
        rotated = store.rotate(
            session, [message.summary("so far")], owner=ME, parent=proof.window, keep_from=3, turn=proof
        )
        store.finish(rotated.open or proof, Completed(), bodies=[Text("done")])
        assert texts(store, session) == ["so far", "done"]

        store.undo(session, owner=ME)

        assert texts(store, session) == ["question 1", "answer 1"]

    # --- redo -------------------------------------------------------------------------------------------------------

    def test_redo_restores_exactly_the_undone_messages(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        before = store.session(session, owner=ME)
        said = said_in(store, session)
        store.undo(session, owner=ME)

        moved = store.redo(session, owner=ME)

        assert said_in(store, session) == said
        assert (moved.window.id, moved.length) == (before.window, before.length)
        assert store.session(session, owner=ME).preview == before.preview

    def test_as_many_redos_as_undos_lead_back(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)
        for _ in range(3):
            store.undo(session, owner=ME)

        lengths = [store.redo(session, owner=ME).length for _ in range(3)]

        assert lengths == [2, 4, 6]

    def test_redo_grows_revision_and_context(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        undone = store.undo(session, owner=ME)

        moved = store.redo(session, owner=ME)

        assert (moved.revision, moved.context) == (undone.revision + 1, undone.context + 1)

    def test_redo_writes_an_event_with_the_restored_window(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        first = store.session(session, owner=ME).window
        undone = store.undo(session, owner=ME)

        store.redo(session, owner=ME)

        assert bodies_of(store, session)[-1] == WindowOpened(first, undone.window.id, "redo", 2)

    def test_redo_lives_until_the_next_message(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        store.undo(session, owner=ME)
        talk(store, session)
        before = look(store, session)

        with pytest.raises(NothingToDo):
            store.redo(session, owner=ME)

        assert look(store, session) == before

    def test_without_an_undo_there_is_nothing_to_redo(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)

        with pytest.raises(NothingToDo):
            store.redo(session, owner=ME)

    def test_one_undo_allows_one_redo(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        store.undo(session, owner=ME)
        store.redo(session, owner=ME)

        with pytest.raises(NothingToDo):
            store.redo(session, owner=ME)

    def test_a_change_without_messages_leaves_redo_possible(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        store.undo(session, owner=ME)
        store.rename(session, "new name", owner=ME)
        store.withdraw(enqueue(store, session).id, owner=ME)

        store.redo(session, owner=ME)

        assert texts(store, session) == ["question 1", "answer 1"]

    def test_redo_is_refused_while_a_turn_runs(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        store.undo(session, owner=ME)
        start(store, session)

        with pytest.raises(SessionBusy):
            store.redo(session, owner=ME)

    def test_redo_is_refused_while_a_turn_waits(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        store.undo(session, owner=ME)
        enqueue(store, session)

        with pytest.raises(SessionBusy):
            store.redo(session, owner=ME)

    def test_redo_of_a_session_that_changed_since_the_caller_looked_is_refused(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        undone = store.undo(session, owner=ME)
        store.rename(session, "new name", owner=ME)

        with pytest.raises(RevisionMismatch):
            store.redo(session, owner=ME, expect_revision=undone.revision)

    def test_redo_leads_back_across_a_compaction(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)
        compact(store, session, keep_from=5)
        store.undo(session, owner=ME)

        store.redo(session, owner=ME)

        assert texts(store, session) == ["so far", "answer 3"]

    def test_a_turn_after_a_redo_is_undone_alone(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        store.undo(session, owner=ME)
        store.redo(session, owner=ME)
        talk(store, session)

        store.undo(session, owner=ME)

        assert texts(store, session) == ["question 1", "answer 1", "question 2", "answer 2"]

    def test_an_undo_after_a_turn_that_followed_an_undo_can_be_redone(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        store.undo(session, owner=ME)
        store.record(session, [message.user("instead")], owner=ME)
        store.undo(session, owner=ME)

        store.redo(session, owner=ME)

        assert texts(store, session) == ["question 1", "answer 1", "instead"]
