"""Tool calls: in the ledger before they run, decided by people, never guessed."""

import pytest

from backstay.errors import Conflict, InvalidPayload, NothingToDo, SessionEnded, SessionExpired
from backstay.model import event
from backstay.model.content import Body, ToolCall, ToolResult
from backstay.model.session import Ttl
from backstay.model.turn import Cancelled, Completed, Failed, Interrupted, Outcome
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import ContractBase
from tests.contract.builders import (
    ME,
    bodies_of,
    enqueue,
    events_of,
    every_outcome,
    look,
    new_session,
    refused,
    room,
    run,
    say,
    start,
)


class CallContract(ContractBase):
    """Facts about tool calls."""

    def test_a_tool_call_is_in_the_ledger_before_it_runs(self, store: Store, other: Store) -> None:
        proof = say(store, start(store, room()), ToolCall("c1", "search"), ToolCall("c2", "mail", {"to": "kit"}))

        first, second = other.calls(proof.id, owner=ME)

        assert (first.call, first.name, first.effect, first.approval) == ("c1", "search", "called", "none")
        assert (second.call, second.name, second.ordinal, second.root) == ("c2", "mail", 1, proof.root)
        keys = [each.key for each in bodies_of(store, proof.session) if isinstance(each, event.ToolCalled)]
        assert keys == [first.key, second.key]
        assert first.key != second.key

    def test_a_result_is_noted_in_the_ledger(self, store: Store) -> None:
        proof = say(store, start(store, room()), ToolCall("c1", "search"), ToolCall("c2", "search"))

        say(store, proof, ToolResult("c2", "found"))

        assert [call.effect for call in store.calls(proof.id, owner=ME)] == ["called", "returned"]

    def test_the_ledger_has_the_times_of_a_call_and_its_result(self, store: Store, clock: ManualClock) -> None:
        began = clock.now()
        proof = say(store, start(store, room()), ToolCall("c1", "search"), ToolCall("c2", "search"))
        clock.advance(1.5)
        proof = say(store, proof, ToolResult("c2", "found"))
        clock.advance(1)

        store.finish(proof, Interrupted())

        lost, found = store.calls(proof.id, owner=ME)
        assert (lost.started_at, lost.ended_at) == (began, None)
        assert (found.started_at, found.ended_at) == (began, began + 1500)
        told_at = {type(each.body): each.at for each in events_of(store, proof.session)}
        assert (told_at[event.ToolCalled], told_at[event.ToolReturned]) == (found.started_at, found.ended_at)

    @pytest.mark.parametrize("approved", [True, False])
    def test_a_call_with_approval_begins_when_it_is_approved(
        self, store: Store, clock: ManualClock, approved: bool
    ) -> None:
        asked = clock.now()
        proof = say(store, start(store, room()), ToolCall("c1", "mail", approval=True))
        assert store.calls(proof.id, owner=ME)[0].started_at is None
        clock.advance(5)

        decided = (store.approve if approved else store.deny)(proof.id, "c1", owner=ME)

        assert decided.started_at == (asked + 5_000 if approved else None)

    def test_a_call_that_is_left_to_the_client_is_not_begun_here(self, store: Store) -> None:
        proof = say(store, start(store, room()), ToolCall("c1", "mail", client=True))

        assert store.calls(proof.id, owner=ME)[0].started_at is None

    @pytest.mark.parametrize(
        "bodies",
        [
            [ToolCall("c1", "again")],
            [ToolResult("c1"), ToolResult("c1")],
            [ToolResult("c2")],
            [ToolCall("c2", "x"), ToolCall("c2", "x")],
        ],
        ids=["a call twice", "a result twice", "a result without a call", "two calls at once with one id"],
    )
    def test_calls_and_results_come_in_pairs(self, store: Store, bodies: list[Body]) -> None:
        proof = say(store, start(store, room()), ToolCall("c1", "search"))

        with refused(store, proof.session, InvalidPayload, proof.id):
            store.checkpoint(proof, bodies)

    def test_call_ids_need_only_be_unique_within_their_turn(self, store: Store) -> None:
        answer: list[Body] = [ToolCall("c1", "search"), ToolResult("c1")]

        first, second = (run(store, room(), "look", answer).turn for _ in range(2))

        assert [call.effect for turn in (first, second) for call in store.calls(turn.id, owner=ME)] == ["returned"] * 2

    @every_outcome
    def test_a_call_without_a_result_may_have_run(self, store: Store, outcome: Outcome) -> None:
        proof = say(store, start(store, room()), ToolCall("c1", "a"), ToolCall("c2", "b"), ToolCall("c3", "c"))

        store.finish(proof, outcome, bodies=[ToolResult("c2")])

        assert [call.effect for call in store.calls(proof.id, owner=ME)] == ["unknown", "returned", "unknown"]
        ending = bodies_of(store, proof.session)[-1]
        assert isinstance(ending, event.TurnEnded)
        assert ending.may_have_run == ("c1", "c3")

    @pytest.mark.parametrize("approved", [True, False])
    def test_a_call_with_approval_is_approved_or_denied(self, store: Store, other: Store, approved: bool) -> None:
        proof = say(store, start(store, room()), ToolCall("c1", "mail", {"to": "kit"}, approval=True))
        (asked,) = store.calls(proof.id, owner=ME)
        assert asked.approval == "asked"
        before = store.session(proof.session, owner=ME)
        decide = other.approve if approved else other.deny

        decided = decide(proof.id, "c1", owner=ME, arguments_hash=asked.arguments_hash)

        assert decided.approval == ("approved" if approved else "denied")
        assert store.calls(proof.id, owner=ME) == (decided,)
        assert bodies_of(store, proof.session)[-1] == event.ApprovalDecided("c1", approved)
        assert store.session(proof.session, owner=ME).revision == before.revision + 1

    def test_deciding_the_same_again_writes_nothing(self, store: Store) -> None:
        proof = say(store, start(store, room()), ToolCall("c1", "mail", approval=True))
        store.approve(proof.id, "c1", owner=ME)
        before = look(store, proof.session, [proof.id])

        store.approve(proof.id, "c1", owner=ME)

        assert look(store, proof.session, [proof.id]) == before

    def test_a_decision_is_bound_to_the_arguments_that_were_shown(self, store: Store) -> None:
        proof = start(store, room())
        proof = say(store, proof, ToolCall("c1", "mail", {"to": "kit"}, approval=True))
        proof = say(store, proof, ToolCall("c2", "mail", {"to": "everyone"}, approval=True))
        shown, _ = store.calls(proof.id, owner=ME)

        with refused(store, proof.session, Conflict, proof.id):
            store.approve(proof.id, "c2", owner=ME, arguments_hash=shown.arguments_hash)
        with refused(store, proof.session, Conflict, proof.id):
            store.deny(proof.id, "c2", owner=ME, arguments_hash=shown.arguments_hash)

    def test_a_decision_does_not_depend_on_the_order_of_keys(self, store: Store) -> None:
        proof = start(store, room())
        calls = [
            ToolCall("c1", "x", {"a": 1, "b": {"c": 2, "d": 3}}),
            ToolCall("c2", "x", {"b": {"d": 3, "c": 2}, "a": 1}),
        ]

        say(store, proof, *calls)

        first, second = store.calls(proof.id, owner=ME)
        assert first.arguments_hash == second.arguments_hash

    def test_a_decision_does_not_depend_on_the_spelling_of_a_number(self, store: Store) -> None:
        proof = start(store, room())
        arguments = ({"a": [5, -0.0]}, {"a": [5.0, 0]}, {"a": [5.5, 0]})

        say(store, proof, *(ToolCall(f"c{place}", "x", given) for place, given in enumerate(arguments)))

        first, second, third = store.calls(proof.id, owner=ME)
        assert first.arguments_hash == second.arguments_hash != third.arguments_hash

    @pytest.mark.parametrize(
        ("call", "then"),
        [
            (ToolCall("c1", "x"), None),
            (ToolCall("c1", "x", approval=True), ToolResult("c1")),
            (ToolCall("c2", "x", approval=True), None),
        ],
        ids=["it did not ask", "it has returned", "there is no such call"],
    )
    def test_only_a_call_that_waits_for_a_decision_can_be_decided(
        self, store: Store, call: ToolCall, then: ToolResult | None
    ) -> None:
        proof = say(store, start(store, room()), call, *(() if then is None else (then,)))

        with refused(store, proof.session, NothingToDo, proof.id):
            store.approve(proof.id, "c1", owner=ME)
        with refused(store, proof.session, NothingToDo, proof.id):
            store.deny(proof.id, "c1", owner=ME)

    def test_a_decision_is_not_reversed(self, store: Store) -> None:
        proof = say(store, start(store, room()), ToolCall("c1", "mail", approval=True))
        store.deny(proof.id, "c1", owner=ME)

        with refused(store, proof.session, NothingToDo, proof.id):
            store.approve(proof.id, "c1", owner=ME)

    @pytest.mark.parametrize("outcome", [Completed(), Cancelled(), Failed("gave up")])
    def test_a_call_that_can_never_run_again_cannot_be_decided(self, store: Store, outcome: Outcome) -> None:
        proof = say(store, start(store, room()), ToolCall("c1", "mail", approval=True))
        store.finish(proof, outcome)

        with refused(store, proof.session, NothingToDo, proof.id):
            store.approve(proof.id, "c1", owner=ME)

    @pytest.mark.parametrize("closed", [SessionEnded, SessionExpired])
    def test_nothing_is_decided_in_a_session_that_is_closed(
        self, store: Store, clock: ManualClock, closed: type[Conflict]
    ) -> None:
        session = store.create(owner=ME, ttl=Ttl(idle=60)).id
        proof = say(store, start(store, session), ToolCall("c1", "mail", approval=True))
        store.finish(proof, Interrupted())
        if closed is SessionEnded:
            store.end(session, owner=ME)
        else:
            clock.advance(60)

        with refused(store, session, closed, proof.id):
            store.approve(proof.id, "c1", owner=ME)
        with refused(store, session, closed, proof.id):
            store.deny(proof.id, "c1", owner=ME)

    @every_outcome
    def test_a_call_that_only_waited_for_a_person_has_not_run(self, store: Store, outcome: Outcome) -> None:
        calls = [
            ToolCall("c1", "mail", approval=True),
            ToolCall("c2", "mail", approval=True),
            ToolCall("c3", "mail", approval=True),
        ]
        proof = say(store, start(store, room()), *calls)
        store.approve(proof.id, "c2", owner=ME)
        store.deny(proof.id, "c3", owner=ME)

        store.finish(proof, outcome)

        assert [call.effect for call in store.calls(proof.id, owner=ME)] == ["called", "unknown", "called"]
        ending = bodies_of(store, proof.session)[-1]
        assert isinstance(ending, event.TurnEnded)
        assert ending.may_have_run == ("c2",)

    def test_a_waiting_turn_has_no_calls(self, store: Store) -> None:
        waiting = enqueue(store, new_session(store))

        assert store.calls(waiting.id, owner=ME) == ()
