"""Resuming: a turn that was interrupted goes on as a new one, with the same input, root and ledger."""

import pytest

from backstay.errors import Conflict, InvalidPayload, NothingToDo, SessionBusy, SessionEnded
from backstay.model import event
from backstay.model.content import Text, ToolCall, ToolResult
from backstay.model.turn import Cancelled, Completed, Failed, Interrupted, OpenTurn, Outcome
from backstay.store import Store
from backstay.testing.clock import ManualClock
from backstay.testing.contract.base import LEASE, ContractBase
from backstay.testing.contract.makers import (
    AGENT,
    ME,
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
    told,
)

MAIL = ToolCall("c1", "mail", {"to": "kit"})


def interrupted(store: Store, *calls: ToolCall) -> OpenTurn:
    """A turn that was stopped after it had said something and made these calls."""
    proof = say(store, start(store, room(), "write to kit"), Text("One moment."), *calls)
    store.finish(proof, Interrupted("stopped"))
    return proof


class ResumeContract(ContractBase):
    """Facts about turns that go on."""

    def test_an_interrupted_turn_goes_on_as_a_new_one(self, store: Store, other: Store, clock: ManualClock) -> None:
        first = interrupted(store)
        before = store.session(first.session, owner=ME)
        clock.advance(1)

        proof = other.resume(first.id, owner=ME)

        turn, session = store.turn(proof.id, owner=ME), store.session(first.session, owner=ME)
        assert proof.id != first.id
        assert (proof.root, proof.agent, proof.holder, proof.session) == (
            first.id,
            first.agent,
            other.worker,
            first.session,
        )
        assert (turn.state, turn.root, turn.started_at) == ("running", first.id, clock.now())
        assert (session.running, session.revision) == (proof.id, before.revision + 1)
        assert proof.fence > before.fence

    def test_it_reads_the_same_input_and_says_nothing_twice(self, store: Store) -> None:
        first = interrupted(store)
        before = look(store, first.session)

        proof = store.resume(first.id, owner=ME)

        assert proof.input == first.input
        assert said_in(store, first.session) == before.messages
        assert proof.context == before.session.context
        assert told(store, first.session)[-1] == event.TurnStarted(first.agent, first.input)

    def test_what_it_says_follows_what_was_said(self, store: Store) -> None:
        proof = store.resume(interrupted(store).id, owner=ME)

        finished = store.finish(proof, Completed(), bodies=[Text("Done.")])

        said = said_in(store, proof.session)
        assert [(each.text, each.partial) for each in said] == [
            ("write to kit", False),
            ("One moment.", True),
            ("Done.", False),
        ]
        assert said[-1].turn == finished.turn.id == proof.id

    def test_a_turn_whose_holder_is_gone_can_be_resumed_at_once(
        self, store: Store, other: Store, clock: ManualClock
    ) -> None:
        gone = say(store, start(store, room()), Text("half an ans"))
        clock.advance(LEASE)

        proof = other.resume(gone.id, owner=ME)

        assert proof.root == gone.id
        assert isinstance(other.turn(gone.id, owner=ME).outcome, Interrupted)
        assert texts(other, gone.session) == ["hello", "half an ans"]

    def test_a_turn_can_be_interrupted_and_resumed_again_and_again(self, store: Store) -> None:
        first = interrupted(store)
        latest = first
        for step in ("one", "two", "three"):
            latest = store.resume(latest.id, owner=ME)
            assert (latest.root, latest.input) == (first.id, first.input)
            store.finish(latest, Interrupted(), bodies=[Text(step)])

        store.finish(store.resume(latest.id, owner=ME), Completed(), bodies=[Text("four")])

        assert texts(store, first.session) == ["write to kit", "One moment.", "one", "two", "three", "four"]

    @pytest.mark.parametrize("outcome", [Completed(), Cancelled(), Failed("no network")])
    def test_only_an_interrupted_turn_is_resumed(self, store: Store, outcome: Outcome) -> None:
        turn = run(store, room(), outcome=outcome).turn

        with refused(store, turn.session, NothingToDo, turn.id):
            store.resume(turn.id, owner=ME)

    def test_a_recorded_turn_is_not_resumed(self, store: Store) -> None:
        session = new_session(store)
        (turn,) = talk(store, session)

        with refused(store, session, NothingToDo, turn.id):
            store.resume(turn.id, owner=ME)

    def test_only_the_last_turn_is_resumed(self, store: Store) -> None:
        first = interrupted(store)
        talk(store, first.session)

        with refused(store, first.session, Conflict, first.id):
            store.resume(first.id, owner=ME)

    def test_a_turn_that_was_undone_is_not_resumed(self, store: Store) -> None:
        first = interrupted(store)
        store.undo(first.session, owner=ME)

        with refused(store, first.session, Conflict, first.id):
            store.resume(first.id, owner=ME)

    def test_a_turn_is_resumed_once(self, store: Store, other: Store) -> None:
        first = interrupted(store)
        proof = store.resume(first.id, owner=ME)

        with refused(store, first.session, SessionBusy, first.id, proof.id):
            other.resume(first.id, owner=ME)

        store.finish(proof, Completed(), bodies=[Text("Done.")])
        with refused(store, first.session, Conflict, first.id, proof.id):
            other.resume(first.id, owner=ME)

    def test_nothing_is_resumed_while_a_turn_waits(self, store: Store) -> None:
        first = interrupted(store)
        waiting = enqueue(store, first.session)

        with refused(store, first.session, SessionBusy, first.id, waiting.id):
            store.resume(first.id, owner=ME)
        with refused(store, first.session, (SessionBusy, NothingToDo), first.id, waiting.id):
            store.resume(waiting.id, owner=ME)

    def test_nothing_is_resumed_in_a_session_that_ended(self, store: Store) -> None:
        first = interrupted(store)
        store.end(first.session, owner=ME)

        with refused(store, first.session, SessionEnded, first.id):
            store.resume(first.id, owner=ME)

    # --- the ledger -------------------------------------------------------------------------------------------------

    def test_the_ledger_goes_on_where_it_was(self, store: Store) -> None:
        first = interrupted(store, MAIL, ToolCall("c2", "search"))
        proof = store.resume(first.id, owner=ME)

        say(store, proof, ToolCall("c1", "search"), ToolResult("c1", "found"))

        ledger = store.ledger(first.id, owner=ME)
        assert [(call.turn, call.call, call.ordinal, call.effect) for call in ledger] == [
            (first.id, "c1", 0, "unknown"),
            (first.id, "c2", 1, "unknown"),
            (proof.id, "c1", 2, "returned"),
        ]
        assert len({call.key for call in ledger}) == 3
        assert store.calls(proof.id, owner=ME) == ledger[2:]

    def test_a_call_that_is_made_again_keeps_its_key_and_begins_anew(self, store: Store, clock: ManualClock) -> None:
        first = interrupted(store, MAIL)
        (before,) = store.ledger(first.id, owner=ME)
        clock.advance(1)
        proof = store.resume(first.id, owner=ME)

        again = ToolCall("c7", MAIL.name, MAIL.arguments)
        proof = store.checkpoint(proof, [again], repeats={"c7": before.ordinal}).open

        (after,) = store.ledger(first.id, owner=ME)
        assert after.key == before.key
        assert (after.turn, after.call, after.effect) == (proof.id, "c7", "called")
        assert (after.started_at, after.ended_at) == (clock.now(), None)
        assert told(store, proof.session)[-1] == event.ToolCalled(again, before.key)

    @pytest.mark.parametrize(
        ("again", "ordinal"),
        [
            (ToolCall("c7", "mail", {"to": "kit"}), 1),
            (ToolCall("c7", "mail", {"to": "kit"}), 2),
            (ToolCall("c7", "mail", {"to": "kit"}), 99),
            (ToolCall("c7", "mail", {"to": "kit"}), -1),
            (ToolCall("c7", "mail", {"to": "kit"}), "0"),
            (ToolCall("c7", "mail", {"to": "everyone"}), 0),
            (ToolCall("c7", "shout", {"to": "kit"}), 0),
        ],
        ids=[
            "one that returned",
            "one that is next",
            "one that never was",
            "one before all",
            "one in words",
            "one with other arguments",
            "one of another tool",
        ],
    )
    def test_only_the_same_call_without_a_result_is_made_again(
        self, store: Store, again: ToolCall, ordinal: int
    ) -> None:
        first = say(store, start(store, room()), MAIL, ToolCall("c2", "mail", {"to": "kit"}), ToolResult("c2", "sent"))
        store.finish(first, Interrupted())
        proof = store.resume(first.id, owner=ME)

        with refused(store, proof.session, (InvalidPayload, Conflict), first.id, proof.id):
            store.checkpoint(proof, [again], repeats={"c7": ordinal})

    def test_a_call_is_not_made_again_within_its_own_turn(self, store: Store) -> None:
        proof = say(store, start(store, room()), MAIL)

        with refused(store, proof.session, (InvalidPayload, Conflict), proof.id):
            store.checkpoint(proof, [ToolCall("c7", MAIL.name, MAIL.arguments)], repeats={"c7": 0})

    @pytest.mark.parametrize("approved", [True, False])
    def test_a_decision_that_came_after_the_interruption_holds_when_the_call_is_made_again(
        self, store: Store, clock: ManualClock, approved: bool
    ) -> None:
        asking = ToolCall("c1", "mail", {"to": "kit"}, approval=True)
        first = interrupted(store, asking)
        decide = store.approve if approved else store.deny

        decided = decide(first.id, "c1", owner=ME)
        assert decided.started_at is None
        clock.advance(1)
        proof = store.resume(first.id, owner=ME)
        proof = store.checkpoint(proof, [asking], repeats={"c1": decided.ordinal}).open

        (line,) = store.ledger(first.id, owner=ME)
        assert (line.turn, line.key, line.approval) == (proof.id, decided.key, decided.approval)
        assert line.effect == "called"
        assert line.started_at == (clock.now() if approved else None)
        assert told(store, proof.session)[-1] == event.ApprovalDecided("c1", approved)

    def test_a_turn_that_was_steered_before_it_was_interrupted_can_be_resumed(self, store: Store) -> None:
        proof = start(store, room(), "write to kit")
        store.steer(proof.session, "and to kim", owner=ME)
        proof = store.checkpoint(proof, [Text("One moment.")], take_steering=True).open
        store.finish(proof, Interrupted("stopped"))

        assert store.interrupted([AGENT]) == ((proof.id, ME),)
        assert store.resume(proof.id, owner=ME).input == proof.input
