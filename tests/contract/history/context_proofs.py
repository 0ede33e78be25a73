"""Proofs: the context that a holder found, kept and left, by which live agents are validated."""

import pytest
from msgspec.structs import replace

from backstay.model import message
from backstay.model.content import Body, Text, ToolCall, ToolResult
from backstay.model.turn import Completed
from backstay.store import Store
from tests.contract.base import ContractBase
from tests.contract.builders import AGENT, ME, enqueue, new_session, run, said_in, start, talk
from tests.contract.history.compaction_turns import follows, held, rotate


class ProofContract(ContractBase):
    """Facts about context numbers, windows and positions in proofs."""

    def test_a_proof_names_the_context_that_was_found_before_its_own_input(self, store: Store, other: Store) -> None:
        session = new_session(store)
        finished = run(store, session)
        first = start(store, session)
        assert (first.found, first.window) == (finished.context, finished.window)
        assert first.context > first.found
        ended = store.finish(first, Completed(), bodies=[Text("hm")])
        other.record(session, [message.user("by the way")], owner=ME)

        second = start(store, session)

        assert second.found == store.session(session, owner=ME).context - 1 > ended.context

    def test_a_renamed_or_pinned_session_is_found_as_it_was_left(self, store: Store, other: Store) -> None:
        session = new_session(store)
        finished = run(store, session)

        other.rename(session, "Soup", owner=ME)
        other.pin(session, True, owner=ME)
        other.save_draft(session, "what ab", owner=ME)
        other.tag(session, owner=ME, add=["kitchen"])

        assert start(store, session).found == finished.context

    def test_an_ended_turn_shows_whether_its_session_has_a_title(self, store: Store) -> None:
        session = new_session(store)
        assert not run(store, session).titled

        store.rename(session, "Soup", owner=ME)
        assert run(store, session).titled

        store.rename(session, None, owner=ME)
        assert not run(store, session).titled

    def test_the_next_turn_finds_the_context_that_the_last_one_left(self, store: Store) -> None:
        session = new_session(store)
        answers: list[str | list[Body]] = ["hi", [], [ToolCall("a", "look"), ToolResult("a", 1)]]
        for answer in answers:
            finished = run(store, session, answer=answer)
            proof = start(store, session)
            assert (proof.found, proof.input.position) == (finished.context, finished.length)
            store.finish(proof, Completed())

    def test_an_ended_turn_reports_its_window_before_waiting_inputs_are_added(self, store: Store) -> None:
        session = new_session(store)
        proof = start(store, session)
        store.record(session, [message.user("a note"), message.assistant("noted")], owner=ME)
        enqueue(store, session, "next")

        finished = store.finish(proof, Completed(), bodies=[Text("hi")], agents=[AGENT])

        following = follows(finished)
        assert (finished.window, finished.length, finished.unbroken) == (proof.window, 2, True)
        assert following.found > finished.context, "the note came between"
        assert following.input.position == 4
        assert finished.context == proof.context + 1

    def test_a_turn_that_rotated_its_session_reports_the_end_of_the_next_window(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        proof = held(rotate(store, start(store, session, "go on"), 4))

        finished = store.finish(proof, Completed(), bodies=[Text("done")])

        assert (finished.window, finished.length, finished.unbroken) == (proof.window, 3, True)
        assert start(store, session).found == finished.context

    @pytest.mark.parametrize(("keep_from", "position"), [(1, 5), (4, 2), (5, 2)])
    def test_after_a_rotation_the_proof_has_the_new_position_of_its_input(
        self, store: Store, keep_from: int, position: int
    ) -> None:
        session = new_session(store)
        talk(store, session, 2)

        proof = held(rotate(store, start(store, session, "go on"), keep_from, "who", "what"))

        assert proof.input.position == position
        if keep_from <= 4:
            assert said_in(store, session)[position] == proof.input

    def test_a_rotation_that_did_nothing_changes_no_proof(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        proof = start(store, session)

        rotated = rotate(store, proof, 0)

        assert (rotated.won, rotated.open) == (False, proof)
        assert store.finish(held(rotated), Completed()).unbroken

    def test_a_rotation_does_not_hide_changes_by_others(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        stale = start(store, session, "go on")
        proof = held(rotate(store, stale, 4))
        lagging = replace(proof, context=stale.context)

        rotated = rotate(store, lagging, 1)

        assert rotated.won
        assert held(rotated).context == rotated.context - 1, "one change is not its own"
        assert not store.finish(held(rotated), Completed()).unbroken
