"""Steering: another input for a turn that runs, taken by it or left to run next."""

from backstay.errors import NothingToDo
from backstay.model import event
from backstay.model.content import Text, ToolCall, ToolResult
from backstay.model.turn import Completed, Inbox, Outcome
from backstay.store import Store
from tests.contract.base import ContractBase
from tests.contract.builders import (
    AGENT,
    ME,
    Lines,
    bodies_of,
    enqueue,
    every_outcome,
    new_session,
    refused,
    room,
    said_in,
    say,
    start,
    texts,
)


class SteeringContract(ContractBase):
    """Facts about steering."""

    def test_a_steering_input_is_a_waiting_turn(self, store: Store) -> None:
        proof = start(store, room())

        steering = store.submit(proof.session, "not so fast", owner=ME, if_busy="steer").turn

        assert (steering.state, steering.steer, steering.taken_by) == ("waiting", True, None)
        assert steering.input == (Text("not so fast"),)
        assert bodies_of(store, proof.session)[-1] == event.TurnSubmitted(AGENT, (Text("not so fast"),), True)

    def test_a_running_turn_takes_the_steering_inputs_in_order(self, store: Store, other: Store) -> None:
        proof = start(store, room())
        first, second = (
            other.submit(proof.session, text, owner=ME, if_busy="steer").turn for text in ("slower", "and louder")
        )

        taken = store.checkpoint(proof, [Text("La ")], take_steering=True)

        assert [(each.turn, each.parts) for each in taken.steering] == [
            (first.id, (Text("slower"),)),
            (second.id, (Text("and louder"),)),
        ]
        assert taken.inbox == Inbox(cancel=False, steering=0, waiting=0)
        assert store.turn(first.id, owner=ME).taken_by == proof.id
        assert store.waiting(proof.session, owner=ME) == ()
        assert bodies_of(store, proof.session)[-3:] == [
            event.TextDelta("La "),
            event.SteeringTaken(first.id, (Text("slower"),)),
            event.SteeringTaken(second.id, (Text("and louder"),)),
        ]

    def test_steering_is_taken_only_when_the_holder_asks_and_only_once(self, store: Store) -> None:
        proof = start(store, room())
        store.submit(proof.session, "slower", owner=ME, if_busy="steer")

        unasked = store.checkpoint(proof, [Text("a")])
        asked = store.checkpoint(unasked.open, [Text("b")], take_steering=True)
        again = store.checkpoint(asked.open, [Text("c")], take_steering=True)

        assert [len(each.steering) for each in (unasked, asked, again)] == [0, 1, 0]

    def test_turns_that_only_wait_are_not_taken_as_steering(self, store: Store) -> None:
        proof = start(store, room())
        waiting = enqueue(store, proof.session)

        taken = store.checkpoint(proof, [], take_steering=True)

        assert taken.steering == ()
        assert store.turn(waiting.id, owner=ME).taken_by is None

    def test_a_taken_input_is_placed_where_the_agent_took_it(self, store: Store) -> None:
        proof = start(store, room(), "sing")
        store.submit(proof.session, "slower", owner=ME, if_busy="steer")
        proof = store.checkpoint(proof, [Text("La la")], take_steering=True).open

        store.finish(proof, Completed(), bodies=[Text("Laaa")])

        said = [(each.role, each.text) for each in said_in(store, proof.session)]
        assert said == [("user", "sing"), ("assistant", "La la"), ("user", "slower"), ("assistant", "Laaa")]

    def test_a_taken_input_is_never_placed_between_a_call_and_its_result(self, store: Store) -> None:
        proof = start(store, room(), "look")
        proof = say(store, proof, ToolCall("c1", "search"), ToolCall("c2", "search"))
        store.submit(proof.session, "only green", owner=ME, if_busy="steer")
        proof = store.checkpoint(proof, [ToolResult("c1", 1)], take_steering=True).open
        proof = say(store, proof, ToolResult("c2", 2))

        store.finish(proof, Completed(), bodies=[Text("Green.")])

        expected: Lines = [
            ("user", (Text("look"),)),
            ("assistant", (ToolCall("c1", "search"), ToolCall("c2", "search"))),
            ("tool", (ToolResult("c1", 1), ToolResult("c2", 2))),
            ("user", (Text("only green"),)),
            ("assistant", (Text("Green."),)),
        ]
        assert [(each.role, each.parts) for each in said_in(store, proof.session)] == expected

    @every_outcome
    def test_a_taken_input_ends_as_the_turn_that_took_it(self, store: Store, outcome: Outcome) -> None:
        proof = start(store, room())
        steering = store.submit(proof.session, "slower", owner=ME, if_busy="steer").turn
        proof = store.checkpoint(proof, [Text("La")], take_steering=True).open

        store.finish(proof, outcome)

        ended = store.turn(steering.id, owner=ME)
        assert (ended.state, ended.outcome, ended.taken_by) == ("ended", outcome, proof.id)
        assert store.session(proof.session, owner=ME).waiting == 0
        assert texts(store, proof.session) == ["hello", "La", "slower"]

    def test_a_taken_input_can_no_longer_be_changed(self, store: Store) -> None:
        proof = start(store, room())
        steering = store.submit(proof.session, "slower", owner=ME, if_busy="steer").turn.id
        proof = store.checkpoint(proof, [], take_steering=True).open

        with refused(store, proof.session, NothingToDo, steering):
            store.edit_waiting(steering, "faster", owner=ME)
        with refused(store, proof.session, NothingToDo, steering):
            store.withdraw(steering, owner=ME)
        with refused(store, proof.session, NothingToDo, steering):
            store.cancel(steering, owner=ME)

    def test_steering_that_was_not_taken_runs_next_in_order(self, store: Store) -> None:
        proof = start(store, room())
        later = enqueue(store, proof.session, "later")
        first, second = (
            store.submit(proof.session, text, owner=ME, if_busy="steer").turn for text in ("slower", "and louder")
        )
        assert [turn.id for turn in store.waiting(proof.session, owner=ME)] == [first.id, second.id, later.id]

        following = store.finish(proof, Completed(), agents=[AGENT]).opened

        assert following is not None
        assert (following.id, following.input.text) == (first.id, "slower")
        assert [turn.id for turn in store.waiting(proof.session, owner=ME)] == [second.id, later.id]

    def test_steering_an_idle_session_is_an_ordinary_turn(self, store: Store) -> None:
        session = new_session(store)

        steering = store.submit(session, "hello?", owner=ME, if_busy="steer").turn

        assert (steering.state, steering.steer) == ("waiting", False)
        opened = store.claim([AGENT])
        assert opened is not None
        assert opened.id == steering.id
