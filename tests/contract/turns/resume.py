"""Resuming: an interrupted turn continues as a new one, with the same input, root and ledger."""

from collections.abc import Callable

import pytest

from backstay.errors import Conflict, InvalidPayload, NothingToDo, SessionBusy, SessionEnded
from backstay.model import event
from backstay.model.content import Body, Text, ToolCall, ToolResult
from backstay.model.turn import Cancelled, Completed, Failed, Interrupted, OpenTurn, Outcome, ToolCallRecord
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import LEASE, ContractBase
from tests.contract.builders import (
    AGENT,
    ME,
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

MAIL = ToolCall("c1", "mail", {"to": "kit"})
AGAIN = ToolCall("c7", "mail", {"to": "kit"})
ASKING = ToolCall("c1", "mail", {"to": "kit"}, approval=True)
REPEATABLE = ToolCall("c7", "mail", {"to": "kit"}, idempotent=True)

Decide = Callable[..., ToolCallRecord]


def interrupted(store: Store, *calls: ToolCall) -> OpenTurn:
    """A turn that was interrupted after some output and these calls."""
    proof = say(store, start(store, room(), "write to kit"), Text("One moment."), *calls)
    store.finish(proof, Interrupted("stopped"))
    return proof


class ResumeContract(ContractBase):
    """Facts about resumed turns."""

    def test_an_interrupted_turn_is_resumed_as_a_new_turn(self, store: Store, other: Store, clock: ManualClock) -> None:
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

    def test_a_resumed_turn_reads_the_same_input_and_repeats_no_message(self, store: Store) -> None:
        first = interrupted(store)
        before = look(store, first.session)

        proof = store.resume(first.id, owner=ME)

        assert proof.input == first.input
        assert said_in(store, first.session) == before.messages
        assert proof.context == before.session.context
        assert bodies_of(store, first.session)[-1] == event.TurnStarted(first.agent, first.input)

    def test_the_output_of_a_resumed_turn_follows_the_partial_output(self, store: Store) -> None:
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

    def test_a_resumed_turn_without_output_can_be_resumed(self, store: Store) -> None:
        first = interrupted(store, MAIL)
        silent = store.resume(first.id, owner=ME)
        store.finish(silent, Interrupted())

        assert store.interrupted([AGENT]) == ((silent.id, ME),)
        proof = store.resume(silent.id, owner=ME)

        assert (proof.root, proof.input) == (first.id, first.input)
        store.finish(proof, Completed(), bodies=[Text("Done.")])
        with refused(store, first.session, Conflict, first.id, silent.id, proof.id):
            store.resume(silent.id, owner=ME)

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

    def test_the_ledger_continues_in_the_resumed_turn(self, store: Store) -> None:
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

    def test_a_repeated_call_keeps_its_key_and_starts_again(self, store: Store, clock: ManualClock) -> None:
        first = interrupted(store, MAIL)
        (before,) = store.ledger(first.id, owner=ME)
        clock.advance(1)
        proof = store.resume(first.id, owner=ME)

        again = REPEATABLE
        proof = store.checkpoint(proof, [again], repeats={"c7": before.ordinal}).open

        (after,) = store.ledger(first.id, owner=ME)
        assert after.key == before.key
        assert (after.turn, after.call, after.effect) == (proof.id, "c7", "called")
        assert (after.started_at, after.ended_at) == (clock.now(), None)
        assert bodies_of(store, proof.session)[-1] == event.ToolCalled(again, before.key)

    @pytest.mark.parametrize(
        ("again", "ordinal"),
        [
            (REPEATABLE, 1),
            (REPEATABLE, 2),
            (REPEATABLE, 99),
            (REPEATABLE, -1),
            (REPEATABLE, "0"),
            (ToolCall("c7", "mail", {"to": "everyone"}, idempotent=True), 0),
            (ToolCall("c7", "shout", {"to": "kit"}, idempotent=True), 0),
            (AGAIN, 0),
        ],
        ids=[
            "one that returned",
            "one that is next",
            "one that never was",
            "one before all",
            "one in words",
            "one with other arguments",
            "one of another tool",
            "one that may have run and is not idempotent",
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
            store.checkpoint(proof, [REPEATABLE], repeats={"c7": 0})

    @pytest.mark.parametrize("approved", [True, False])
    def test_a_decision_after_the_interruption_holds_when_the_call_is_made_again(
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
        assert bodies_of(store, proof.session)[-1] == event.ApprovalDecided("c1", approved)

    # --- calls that may have run ------------------------------------------------------------------------------------

    def test_a_call_stays_unknown_after_further_equal_calls(self, store: Store) -> None:
        first = interrupted(store, MAIL)
        (before,) = store.ledger(first.id, owner=ME)
        proof = store.resume(first.id, owner=ME)

        proof = say(store, proof, AGAIN, ToolResult("c7", "sent"), ToolCall("c8", "mail", {"to": "kit"}))
        store.finish(proof, Interrupted())

        ledger = store.ledger(first.id, owner=ME)
        assert ledger[0] == before
        assert [(call.call, call.effect) for call in ledger] == [
            ("c1", "unknown"),
            ("c7", "returned"),
            ("c8", "unknown"),
        ]

    @pytest.mark.parametrize("asks", [False, True], ids=["it does not ask", "it asks"])
    def test_a_call_that_a_person_allows_to_run_again_is_made_under_a_new_key(
        self, store: Store, other: Store, clock: ManualClock, asks: bool
    ) -> None:
        first = interrupted(store, MAIL)
        (before,) = store.ledger(first.id, owner=ME)
        revision = store.session(first.session, owner=ME).revision

        allowed = other.approve(first.id, "c1", owner=ME, arguments_hash=before.arguments_hash, run_again=True)

        assert (allowed.effect, allowed.run_again) == ("unknown", "approved")
        assert bodies_of(store, first.session)[-1] == event.ApprovalDecided("c1", True, run_again=True)
        assert store.session(first.session, owner=ME).revision == revision + 1
        clock.advance(1)
        proof = store.resume(first.id, owner=ME)
        again = ToolCall("c7", "mail", {"to": "kit"}, approval=asks)
        store.checkpoint(proof, [again], repeats={"c7": before.ordinal})
        used, made = store.ledger(first.id, owner=ME)
        assert (used.key, used.turn, used.effect, used.run_again) == (before.key, first.id, "unknown", "used")
        assert (made.turn, made.call, made.effect, made.started_at) == (proof.id, "c7", "called", clock.now())
        assert made.approval == ("approved" if asks else "none")
        assert made.key != before.key

    def test_a_call_that_was_allowed_to_run_again_is_made_once(self, store: Store) -> None:
        first = interrupted(store, MAIL)
        store.approve(first.id, "c1", owner=ME, run_again=True)
        proof = store.resume(first.id, owner=ME)
        proof = store.checkpoint(proof, [AGAIN], repeats={"c7": 0}).open
        before = look(store, proof.session, [first.id, proof.id])

        assert store.approve(first.id, "c1", owner=ME, run_again=True).run_again == "used"
        assert look(store, proof.session, [first.id, proof.id]) == before
        with refused(store, proof.session, InvalidPayload, first.id, proof.id):
            store.checkpoint(proof, [ToolCall("c8", "mail", {"to": "kit"})], repeats={"c8": 0})

    def test_allowing_a_call_to_run_again_twice_writes_nothing(self, store: Store) -> None:
        first = interrupted(store, MAIL)
        allowed = store.approve(first.id, "c1", owner=ME, run_again=True)
        before = look(store, first.session, [first.id])

        assert store.approve(first.id, "c1", owner=ME, run_again=True) == allowed
        assert look(store, first.session, [first.id]) == before

    def test_an_approval_that_came_before_it_ran_does_not_let_a_call_run_again(self, store: Store) -> None:
        asking = ToolCall("c1", "mail", {"to": "kit"}, approval=True)
        first = say(store, start(store, room()), asking)
        store.approve(first.id, "c1", owner=ME)
        store.finish(first, Interrupted())

        # The same answer, sent once more because its receipt was lost.
        assert store.approve(first.id, "c1", owner=ME).run_again == "none"

        proof = store.resume(first.id, owner=ME)
        with refused(store, proof.session, InvalidPayload, first.id, proof.id):
            store.checkpoint(proof, [AGAIN], repeats={"c7": 0})

    def test_running_again_is_bound_to_the_arguments_that_were_shown(self, store: Store) -> None:
        first = interrupted(store, MAIL)

        with refused(store, first.session, Conflict, first.id):
            store.approve(first.id, "c1", owner=ME, arguments_hash="0" * 32, run_again=True)

    @pytest.mark.parametrize(
        ("bodies", "outcome"),
        [
            ([MAIL], None),
            ([MAIL, ToolResult("c1")], Interrupted()),
            ([ToolCall("c1", "mail", approval=True)], Interrupted()),
            ([ToolCall("c2", "mail")], Interrupted()),
            ([MAIL], Completed()),
            ([MAIL], Cancelled()),
            ([MAIL], Failed("gave up")),
        ],
        ids=["it runs", "it returned", "it never ran", "no such call", "completed", "cancelled", "failed"],
    )
    def test_only_a_call_of_an_interrupted_turn_that_may_have_run_is_allowed_again(
        self, store: Store, bodies: list[Body], outcome: Outcome | None
    ) -> None:
        proof = say(store, start(store, room()), *bodies)
        if outcome is not None:
            store.finish(proof, outcome)

        with refused(store, proof.session, NothingToDo, proof.id):
            store.approve(proof.id, "c1", owner=ME, run_again=True)

    def test_nothing_is_allowed_again_once_the_resumed_turn_has_ended(self, store: Store) -> None:
        first = interrupted(store, MAIL)
        proof = store.resume(first.id, owner=ME)
        store.finish(proof, Completed(), bodies=[Text("I may have sent it.")])

        with refused(store, first.session, NothingToDo, first.id, proof.id):
            store.approve(first.id, "c1", owner=ME, run_again=True)

    def test_nothing_is_allowed_again_in_a_session_that_ended(self, store: Store) -> None:
        first = interrupted(store, MAIL)
        store.end(first.session, owner=ME)

        with refused(store, first.session, SessionEnded, first.id):
            store.approve(first.id, "c1", owner=ME, run_again=True)

    def test_a_turn_that_was_steered_before_it_was_interrupted_can_be_resumed(self, store: Store) -> None:
        proof = start(store, room(), "write to kit")
        store.submit(proof.session, "and to kim", owner=ME, if_busy="steer")
        proof = store.checkpoint(proof, [Text("One moment.")], take_steering=True).open
        store.finish(proof, Interrupted("stopped"))

        assert store.interrupted([AGENT]) == ((proof.id, ME),)
        assert store.resume(proof.id, owner=ME).input == proof.input

    # --- approvals of interrupted turns -----------------------------------------------------------------------------

    def test_a_turn_that_is_cut_off_while_it_asks_stays_waiting_for_approval(self, store: Store) -> None:
        first = interrupted(store, ASKING)

        turn = store.turn(first.id, owner=ME)
        (ended,) = (body for body in bodies_of(store, first.session) if isinstance(body, event.TurnEnded))
        assert turn.outcome == ended.outcome == Interrupted("stopped", waiting_for_approval=True)
        assert ended.may_have_run == ()
        assert store.badges([first.session], owner=ME)[0].asks

    @pytest.mark.parametrize("decide", [Store.approve, Store.deny])
    def test_a_decision_lets_an_interrupted_turn_continue(self, store: Store, other: Store, decide: Decide) -> None:
        first = interrupted(store, ASKING)
        assert other.decided([AGENT]) == ()

        decide(other, first.id, ASKING.id, owner=ME)

        assert store.decided([AGENT]) == ((first.id, ME),)
        assert store.decided(["cook"]) == ()
        assert not store.badges([first.session], owner=ME)[0].asks
        store.resume(first.id, owner=ME)
        assert store.decided([AGENT]) == ()

    def test_a_permission_to_run_again_lets_an_interrupted_turn_continue(self, store: Store) -> None:
        first = interrupted(store, MAIL)
        assert store.turn(first.id, owner=ME).outcome == Interrupted("stopped")

        store.approve(first.id, MAIL.id, owner=ME, run_again=True)

        assert store.decided([AGENT]) == ((first.id, ME),)

    def test_a_decision_that_was_made_is_repeated_without_effect(self, store: Store) -> None:
        asking = ToolCall("c1", "mail", {"to": "kit"}, approval=True)
        first = say(store, start(store, room()), asking)
        store.finish(first, Interrupted("silent"))
        decided = store.approve(first.id, "c1", owner=ME)
        second = store.checkpoint(store.resume(first.id, owner=ME), [asking], repeats={"c1": decided.ordinal}).open
        before = store.session(first.session, owner=ME)

        again = store.approve(first.id, "c1", owner=ME, arguments_hash=decided.arguments_hash)
        assert (again.turn, again.approval) == (second.id, "approved")
        assert store.session(first.session, owner=ME) == before
        store.finish(say(store, second, ToolResult("c1", "sent")), Completed())
        assert store.approve(second.id, "c1", owner=ME).effect == "returned"
        for turn in (first.id, second.id):
            with refused(store, first.session, (NothingToDo, Conflict), turn):
                store.deny(turn, "c1", owner=ME)

    def test_the_advice_after_a_tool_that_may_have_run_is_not_to_repeat_it(self, store: Store) -> None:
        proof = say(store, start(store, room(), "write to kit"), MAIL)

        outcome = store.finish(proof, Failed("too slow", hint="Send the message again.")).turn.outcome

        assert isinstance(outcome, Failed)
        assert "again" not in outcome.hint.partition("before")[0]
        assert "may have run" in outcome.hint

    def test_a_call_of_a_session_that_went_on_is_not_decided(self, store: Store) -> None:
        first = interrupted(store, ASKING)
        talk(store, first.session)

        with refused(store, first.session, Conflict, first.id):
            store.approve(first.id, ASKING.id, owner=ME)
        assert store.decided([AGENT]) == ()

    def test_a_decided_turn_does_not_continue_while_a_message_waits(self, store: Store) -> None:
        first = interrupted(store, ASKING)
        store.approve(first.id, ASKING.id, owner=ME)

        enqueue(store, first.session)

        assert store.decided([AGENT]) == ()

    def test_a_turn_that_crashes_before_it_repeats_a_decided_call_can_continue(self, store: Store) -> None:
        first = interrupted(store, ASKING)
        second = store.resume(first.id, owner=ME)
        store.finish(second, Interrupted("stopped again"))

        store.approve(first.id, ASKING.id, owner=ME)

        assert store.decided([AGENT]) == ((second.id, ME),)

    def test_an_interrupted_turn_names_the_one_that_continues_it(self, store: Store, other: Store) -> None:
        turn = store.submit(room(), "write to kit", owner=ME, request_id="r1", start=True).opened
        assert turn is not None
        store.finish(turn, Interrupted("stopped"))
        assert store.turn(turn.id, owner=ME).continued_by is None

        second = other.resume(turn.id, owner=ME)

        assert store.turn(turn.id, owner=ME).continued_by == second.id
        named = store.requested("r1", owner=ME)
        assert named is not None
        assert named.continued_by == second.id
        assert store.submit(room(), "write to kit", owner=ME, request_id="r1").turn.continued_by == second.id
        assert event.TurnContinued(second.id) in bodies_of(store, turn.session)
        other.finish(second, Interrupted("stopped"))
        third = other.resume(second.id, owner=ME)
        assert store.turn(turn.id, owner=ME).continued_by == second.id
        assert store.turn(second.id, owner=ME).continued_by == third.id

    def test_a_turn_that_was_continued_is_not_resumed_again(self, store: Store) -> None:
        first = interrupted(store)
        second = store.resume(first.id, owner=ME)
        store.finish(second, Interrupted("silent"))

        with pytest.raises(Conflict, match=second.id):
            store.resume(first.id, owner=ME)

    def test_the_last_turn_of_a_session_is_the_newest_that_continues_it(self, store: Store) -> None:
        first = interrupted(store)
        assert store.last_turn(first.session, owner=ME).id == first.id

        second = store.resume(first.id, owner=ME)

        assert store.last_turn(first.session, owner=ME).id == second.id
        with pytest.raises(NothingToDo):
            store.last_turn(new_session(store), owner=ME)
