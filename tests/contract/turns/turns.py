"""Turns: started, recorded in numbered events, cancelled, and ended in one of four ways."""

import sys

import msgspec
import pytest

from backstay.errors import InvalidPayload, LeaseLost, NotFound, RequestMismatch, UnknownAgent
from backstay.model import event, message
from backstay.model.content import Body, Custom, Part, Text, Thought, ToolCall, ToolResult, Usage
from backstay.model.limits import Limits
from backstay.model.session import Ttl
from backstay.model.turn import Cancelled, Completed, Failed, Inbox, Outcome
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import LEASE, ContractBase, OpenAnother
from tests.contract.builders import (
    AGENT,
    ME,
    Lines,
    bodies_of,
    enqueue,
    events_of,
    every_outcome,
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
from tests.touching import touch

every_ending = pytest.mark.parametrize("take", [False, True], ids=["asked", "taken"])


class TurnContract(ContractBase):
    """Facts about a turn that runs."""

    # --- starting ---------------------------------------------------------------------------------------------------

    def test_an_input_is_a_message_before_the_agent_starts(self, store: Store, other: Store) -> None:
        proof = start(store, room(), "hello")

        (said,) = said_in(other, proof.session)
        assert said == proof.input
        assert (said.role, said.parts, said.turn, said.partial) == ("user", (Text("hello"),), proof.id, False)

    def test_an_input_without_a_destination_begins_a_session_in_the_same_transaction(
        self, store: Store, other: Store
    ) -> None:
        accepted = store.submit("new", "hello", owner=ME, agent=AGENT, start=True, ttl=Ttl(idle=60.0))

        (session,) = other.list(owner=ME).sessions
        assert session == accepted.session
        assert (session.id, session.running) == (accepted.turn.session, accepted.turn.id)
        assert session.expires_at is not None
        assert texts(other, session.id) == ["hello"]
        assert store.submit("new", "hello", owner=ME).session.id != session.id

    def test_a_repeated_input_without_a_destination_is_the_first_turn(self, store: Store, other: Store) -> None:
        first = store.submit("new", "hello", owner=ME, request_id="r1")

        by_name = other.submit("new", "hello", owner=ME, request_id="r1")
        by_id = other.submit(first.session.id, "hello", owner=ME, request_id="r1")
        for again in (by_name, by_id):
            assert (again.turn.id, again.session.id, again.repeated) == (first.turn.id, first.session.id, True)
        with pytest.raises(RequestMismatch):
            store.submit("new", "something else", owner=ME, request_id="r1")
        with pytest.raises(RequestMismatch):
            store.submit(room(), "hello", owner=ME, request_id="r1")
        store.submit(room(), "hello", owner=ME, request_id="r2")
        with pytest.raises(RequestMismatch):
            store.submit("new", "hello", owner=ME, request_id="r2")

    def test_a_rejected_input_without_a_destination_leaves_no_session(self, store: Store) -> None:
        store.register_agents([AGENT])
        with pytest.raises(UnknownAgent):
            store.submit("new", "hello", owner=ME, agent="nobody", allow_unserved=False)
        with pytest.raises(InvalidPayload):
            store.submit("new", " ", owner=ME)

        assert store.list(owner=ME).sessions == ()

    def test_a_started_turn_is_shown_with_its_holder(self, store: Store, other: Store, clock: ManualClock) -> None:
        proof = start(store, room(), agent="cook")

        session, turn = other.session(proof.session, owner=ME), other.turn(proof.id, owner=ME)
        assert (session.running, session.holder, session.waiting) == (proof.id, store.worker, 0)
        assert (turn.state, turn.agent, turn.outcome, turn.input) == ("running", "cook", None, None)
        assert (turn.created_at, turn.started_at, turn.ended_at) == (clock.now(), clock.now(), None)
        assert (proof.holder, proof.fence, proof.owner, proof.agent) == (store.worker, session.fence, ME, "cook")

    def test_the_event_of_a_started_turn_has_its_input(self, store: Store) -> None:
        proof = start(store, room())

        assert bodies_of(store, proof.session)[1:] == [event.TurnStarted(AGENT, proof.input)]
        assert proof.event == store.session(proof.session, owner=ME).last_event

    def test_starting_a_turn_is_one_revision_and_one_context(self, store: Store) -> None:
        before = store.create(owner=ME)

        accepted = store.submit(before.id, "hello", owner=ME, start=True)

        after = accepted.session
        assert (after.revision, after.context) == (before.revision + 1, before.context + 1)
        assert after.fence > before.fence
        assert store.session(before.id, owner=ME) == after

    def test_an_input_may_have_many_parts(self, store: Store) -> None:
        parts: list[Part] = [Text("look"), Custom("place", {"lat": 52.5, "tags": ["a", None, True]}), Text("there")]

        proof = start(store, room(), parts)

        assert said_in(store, proof.session)[0].parts == tuple(parts)

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def test_each_body_is_one_event_with_the_next_number(self, store: Store) -> None:
        proof = start(store, room())
        bodies: list[Body] = [
            Thought("hm"),
            Text("Let me "),
            Text("look."),
            ToolCall("c1", "search", {"q": "tea"}),
            ToolResult("c1", ["green", "black"]),
            Custom("progress", {"done": 0.5}),
            Usage(input_tokens=10, output_tokens=2),
        ]

        proof = say(store, proof, *bodies)

        events = events_of(store, proof.session)
        assert [each.number for each in events] == list(range(1, len(bodies) + 3))
        assert [each.body for each in events[2:]] == [
            event.ThoughtDelta("hm"),
            event.TextDelta("Let me "),
            event.TextDelta("look."),
            event.ToolCalled(ToolCall("c1", "search", {"q": "tea"}), f"{proof.root}.0"),
            event.ToolReturned(ToolResult("c1", ["green", "black"])),
            event.CustomReported("progress", {"done": 0.5}),
            event.UsageReported(Usage(input_tokens=10, output_tokens=2)),
        ]
        assert {each.turn for each in events[1:]} == {proof.id}
        assert proof.event == events[-1].number == store.session(proof.session, owner=ME).last_event

    def test_a_checkpoint_writes_only_new_events(self, store: Store) -> None:
        proof = start(store, room())
        for word in ("one", "two", "three"):
            proof = say(store, proof, Text(word))

        assert bodies_of(store, proof.session)[2:] == [event.TextDelta(word) for word in ("one", "two", "three")]

    def test_a_checkpoint_is_seen_by_other_handles_at_once(self, store: Store, other: Store) -> None:
        proof = say(store, start(store, room()), Text("one"))

        assert events_of(other, proof.session) == events_of(store, proof.session)
        assert bodies_of(other, proof.session)[-1] == event.TextDelta("one")

    def test_a_checkpoint_is_neither_revision_nor_context_nor_message(self, store: Store) -> None:
        proof = start(store, room())
        before = store.session(proof.session, owner=ME)

        say(store, proof, Text("one"), ToolCall("c1", "search"))

        after = store.session(proof.session, owner=ME)
        assert (after.revision, after.context, after.length) == (before.revision, before.context, before.length)
        assert after.activity == before.activity

    def test_an_empty_checkpoint_writes_no_event(self, store: Store) -> None:
        proof = say(store, start(store, room()), Text("one"))
        before = look(store, proof.session, [proof.id])

        store.checkpoint(proof, [])

        assert look(store, proof.session, [proof.id]) == before

    def test_a_checkpoint_that_is_refused_stores_none_of_its_bodies(self, store: Store) -> None:
        proof = start(store, room())

        with refused(store, proof.session, InvalidPayload, proof.id):
            store.checkpoint(proof, [Text("one"), ToolCall("c1", "search"), ToolResult("no such call")])

        assert say(store, proof, Text("two")).event == proof.event + 1

    def test_events_of_two_writers_have_one_order(self, store: Store, other: Store) -> None:
        proof = start(store, room())

        proof = say(store, proof, Text("one"))
        other.rename(proof.session, "Dinner", owner=ME)
        proof = say(store, proof, Text("two"))
        other.submit(proof.session, "later", owner=ME)
        store.finish(proof, Completed(), bodies=[Text("three")])

        numbers = [each.number for each in events_of(other, proof.session)]
        assert numbers == list(range(1, other.session(proof.session, owner=ME).last_event + 1))
        assert texts(store, proof.session) == ["hello", "onetwothree"]

    # --- renewal and inbox ------------------------------------------------------------------------------------------

    def test_a_renewal_leaves_no_trace(self, store: Store, clock: ManualClock) -> None:
        proof = start(store, room())
        before = look(store, proof.session, [proof.id])
        clock.advance(1)

        renewed = store.renew(proof)

        assert renewed.open.lease_until == proof.lease_until + 1000
        assert look(store, proof.session, [proof.id]) == before

    def test_an_empty_inbox_is_reported_as_empty(self, store: Store) -> None:
        proof = start(store, room())

        assert store.renew(proof).inbox == Inbox(cancel=False, steering=0, waiting=0)
        assert store.checkpoint(proof, [Text("one")]).inbox == Inbox(cancel=False, steering=0, waiting=0)

    def test_the_inbox_of_a_holder_has_waiting_turns_and_steering(self, store: Store, other: Store) -> None:
        proof = start(store, room())
        other.submit(proof.session, "later", owner=ME)
        other.submit(proof.session, "not so fast", owner=ME, if_busy="steer")
        other.cancel(proof.id, owner=ME)

        expected = Inbox(cancel=True, steering=1, waiting=2)
        assert store.inbox(proof) == expected
        assert store.renew(proof).inbox == expected
        assert store.checkpoint(proof, [Text("one")]).inbox == expected

    def test_reading_the_inbox_writes_nothing(self, store: Store, clock: ManualClock) -> None:
        proof = start(store, room())
        before = look(store, proof.session, [proof.id])
        version = store.version()
        clock.advance(1)

        store.inbox(proof)

        assert store.version() == version
        assert look(store, proof.session, [proof.id]) == before

    # --- finishing --------------------------------------------------------------------------------------------------

    def test_the_output_of_an_agent_becomes_messages_for_the_next_turn(self, store: Store) -> None:
        proof = start(store, room(), "which tea?")
        proof = say(store, proof, Thought("hm, "), Thought("tea"), Text("Let me "))
        proof = say(store, proof, Text("look."), ToolCall("c1", "search", {"q": "tea"}))
        proof = say(store, proof, ToolResult("c1", "green"), Usage(output_tokens=5))

        finished = store.finish(proof, Completed(), bodies=[Text("Green"), Text(" tea.")])

        expected: Lines = [
            ("user", (Text("which tea?"),)),
            ("assistant", (Thought("hm, tea"), Text("Let me look."), ToolCall("c1", "search", {"q": "tea"}))),
            ("tool", (ToolResult("c1", "green"),)),
            ("assistant", (Text("Green tea."),)),
        ]
        said = said_in(store, proof.session)
        assert [(each.role, each.parts) for each in said] == expected
        assert said[1:] == finished.messages
        assert {each.turn for each in said} == {proof.id}
        assert not any(each.partial for each in said)

    @pytest.mark.parametrize(
        ("bodies", "expected"),
        [
            ([], []),
            ([Usage(output_tokens=1)], []),
            ([Text("a"), Thought("b"), Text("c")], [("assistant", (Text("a"), Thought("b"), Text("c")))]),
            ([Custom("chart", [1, 2])], [("assistant", (Custom("chart", [1, 2]),))]),
            (
                [Text("a"), Custom("chart"), Usage(), Text("b"), Text("c")],
                [("assistant", (Text("a"), Custom("chart"), Text("bc")))],
            ),
            (
                [ToolCall("1", "x"), ToolCall("2", "y"), ToolResult("2", "Y"), ToolResult("1", error=True)],
                [
                    ("assistant", (ToolCall("1", "x"), ToolCall("2", "y"))),
                    ("tool", (ToolResult("2", "Y"), ToolResult("1", error=True))),
                ],
            ),
            (
                [ToolCall("1", "x"), ToolResult("1"), ToolCall("2", "y"), ToolResult("2"), Thought("done")],
                [
                    ("assistant", (ToolCall("1", "x"),)),
                    ("tool", (ToolResult("1"),)),
                    ("assistant", (ToolCall("2", "y"),)),
                    ("tool", (ToolResult("2"),)),
                    ("assistant", (Thought("done"),)),
                ],
            ),
        ],
        ids=["nothing", "only usage", "thoughts apart", "custom", "usage is no seam", "two calls", "call after call"],
    )
    def test_bodies_fold_into_messages(self, store: Store, bodies: list[Body], expected: Lines) -> None:
        proof = start(store, room())

        store.finish(proof, Completed(), bodies=bodies)

        assert [(each.role, each.parts) for each in said_in(store, proof.session)[1:]] == expected

    def test_messages_do_not_depend_on_the_division_into_checkpoints(self, store: Store) -> None:
        bodies: list[Body] = [Text("a"), Text("b"), ToolCall("c1", "x"), ToolResult("c1"), Thought("c"), Text("d")]
        stories = []
        for size in (1, 2, 3, len(bodies)):
            proof = start(store, room(f"room {size}"))
            for first in range(0, len(bodies), size):
                proof = say(store, proof, *bodies[first : first + size])
            store.finish(proof, Completed())
            stories.append([(each.role, each.parts) for each in said_in(store, proof.session)])

        assert stories == [stories[0]] * 4

    @every_outcome
    def test_a_turn_ends_with_the_outcome_of_its_holder(
        self, store: Store, clock: ManualClock, outcome: Outcome
    ) -> None:
        proof = start(store, room())
        clock.advance(1)

        finished = store.finish(proof, outcome, bodies=[Text("so")])

        turn = store.turn(proof.id, owner=ME)
        assert finished.turn == turn
        assert (turn.state, turn.outcome, turn.ended_at) == ("ended", outcome, clock.now())
        assert bodies_of(store, proof.session)[-1] == event.TurnEnded(outcome, messages=1)

    @every_outcome
    def test_only_a_completed_turn_leaves_no_partial_answer(self, store: Store, outcome: Outcome) -> None:
        proof = start(store, room())
        bodies: list[Body] = [Text("first"), ToolCall("c1", "x"), ToolResult("c1"), Text("seco")]

        store.finish(proof, outcome, bodies=bodies)

        marks = [each.partial for each in said_in(store, proof.session)]
        assert marks == [False, False, False, outcome != Completed()]

    def test_an_ended_turn_frees_the_session(self, store: Store, other: Store) -> None:
        finished = run(store, room())

        session = other.session(finished.turn.session, owner=ME)
        assert (session.running, session.holder, session.waiting, session.turns) == (None, None, 0, 1)
        assert (session.revision, session.context) == (finished.revision, finished.context)
        assert start(other, room()).session == session.id

    def test_finishing_is_one_revision_and_one_context(self, store: Store) -> None:
        proof = start(store, room())
        before = store.session(proof.session, owner=ME)

        finished = store.finish(proof, Completed(), bodies=[Text("hi")])

        assert (finished.revision, finished.context) == (before.revision + 1, before.context + 1)

    def test_a_turn_without_output_does_not_change_the_context(self, store: Store) -> None:
        proof = start(store, room())

        finished = store.finish(proof, Completed())

        assert (finished.messages, finished.context) == ((), proof.context)

    def test_the_preview_shows_the_last_text(self, store: Store) -> None:
        finished = run(store, room(), "which tea?", "Green\n  tea.")

        assert store.session(finished.turn.session, owner=ME).preview == "Green tea."

    def test_usage_is_summed_over_the_turn_and_is_not_a_message(self, store: Store) -> None:
        proof = start(store, room())
        proof = say(store, proof, Usage(10, 1, 4, 0.5, "small", reasoning_tokens=2))

        finished = store.finish(
            proof, Completed(), bodies=[Text("hi"), Usage(input_tokens=20, output_tokens=2, cost=0.25, model="large")]
        )

        total = Usage(30, 3, 4, 0.75, "large", reasoning_tokens=2)
        assert finished.turn.usage == store.turn(proof.id, owner=ME).usage == total
        assert texts(store, proof.session) == ["hello", "hi"]

    def test_usage_that_adds_up_to_more_than_can_be_stored_stays_at_the_most(self, store: Store) -> None:
        most = Usage(input_tokens=(1 << 63) - 1, output_tokens=(1 << 63) - 1, cost=sys.float_info.max)
        proof = start(store, room())
        proof = say(store, proof, most, most)

        finished = store.finish(proof, Completed(), bodies=[Usage(cost=1.5e308, cached_tokens=1)])

        total = msgspec.structs.replace(most, cached_tokens=1)
        assert finished.turn.usage == store.turn(proof.id, owner=ME).usage == total

    def test_a_turn_that_reported_no_usage_has_none(self, store: Store) -> None:
        assert run(store, room()).turn.usage == Usage()

    def test_a_turn_is_finished_once(self, store: Store) -> None:
        proof = start(store, room())
        store.finish(proof, Completed(), bodies=[Text("hi")])

        with refused(store, proof.session, LeaseLost, proof.id):
            store.finish(proof, Completed(), bodies=[Text("hi again")])
        with refused(store, proof.session, LeaseLost, proof.id):
            store.checkpoint(proof, [Text("hi again")])
        with refused(store, proof.session, LeaseLost, proof.id):
            store.renew(proof)

    def test_a_finish_that_is_refused_leaves_the_turn_running(self, store: Store) -> None:
        proof = start(store, room())

        with refused(store, proof.session, InvalidPayload, proof.id):
            store.finish(proof, Completed(), bodies=[Text("hi"), ToolResult("no such call")])

        assert store.finish(proof, Completed()).turn.outcome == Completed()

    def test_a_turn_whose_context_did_not_change_ends_unbroken(self, store: Store, other: Store) -> None:
        proof = say(store, start(store, room()), Text("one"))
        other.rename(proof.session, "Dinner", owner=ME)
        other.submit(proof.session, "later", owner=ME)
        touch(other, proof.session, owner=ME)

        assert store.finish(proof, Completed()).unbroken

    def test_a_holders_own_compaction_does_not_break_its_turn(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        proof = start(store, session)

        rotated = store.rotate(
            session, [message.summary("so far")], owner=ME, parent=proof.window, keep_from=4, turn=proof
        )
        assert rotated.open is not None
        finished = store.finish(rotated.open, Completed(), bodies=[Text("hi")])

        assert rotated.won
        assert finished.unbroken
        assert texts(store, session) == ["so far", "hello", "hi"]

    def test_a_deleted_sessions_turn_cannot_go_on(self, store: Store, other: Store) -> None:
        proof = start(store, room())
        other.delete(proof.session, owner=ME)

        for write in (
            store.renew,
            lambda it: store.checkpoint(it, [Text("one")]),
            lambda it: store.finish(it, Failed()),
        ):
            with pytest.raises(LeaseLost) as caught:
                write(proof)
            assert caught.value.hint
        assert store.about().sessions == 0

    # --- the next turn ----------------------------------------------------------------------------------------------

    def test_a_holder_continues_with_the_next_waiting_turn(self, store: Store, clock: ManualClock) -> None:
        proof = start(store, room(), "one")
        second, third = enqueue(store, proof.session, "two"), enqueue(store, proof.session, "three")
        clock.advance(1)

        finished = store.finish(proof, Completed(), bodies=[Text("1")], agents=[AGENT])

        following = finished.opened
        assert following is not None
        assert (following.id, following.session, following.input.text) == (second.id, proof.session, "two")
        assert following.fence > proof.fence
        assert store.turn(second.id, owner=ME).started_at == clock.now()
        session = store.session(proof.session, owner=ME)
        assert (session.running, session.holder, session.waiting) == (second.id, store.worker, 1)
        assert [turn.id for turn in store.waiting(proof.session, owner=ME)] == [third.id]
        assert texts(store, proof.session) == ["one", "1", "two"]

    def test_a_holder_does_not_start_an_agent_it_does_not_serve(self, store: Store) -> None:
        proof = start(store, room())
        waiting = enqueue(store, proof.session, agent="cook")

        finished = store.finish(proof, Completed(), agents=[AGENT, "gardener"])

        assert finished.opened is None
        assert store.turn(waiting.id, owner=ME).state == "waiting"
        assert store.session(proof.session, owner=ME).running is None

    def test_a_holder_that_serves_no_agent_starts_nothing(self, store: Store) -> None:
        proof = start(store, room())
        enqueue(store, proof.session)

        assert store.finish(proof, Completed()).opened is None

    def test_a_turn_that_was_just_ended_cannot_write_into_the_next(self, store: Store) -> None:
        proof = start(store, room())
        second = enqueue(store, proof.session)
        store.finish(proof, Completed(), agents=[AGENT])

        with refused(store, proof.session, LeaseLost, proof.id, second.id):
            store.checkpoint(proof, [Text("one more thing")])

    # --- cancelling -------------------------------------------------------------------------------------------------

    def test_cancelling_a_running_turn_leaves_word_for_its_holder(self, store: Store, other: Store) -> None:
        proof = start(store, room())
        before = store.session(proof.session, owner=ME)

        asked = other.cancel(proof.id, owner=ME)

        after = store.session(proof.session, owner=ME)
        assert (asked.state, asked.cancel_requested) == ("running", True)
        assert after.revision == before.revision + 1
        assert bodies_of(store, proof.session)[-1] == event.CancelRequested()
        assert store.finish(proof, Cancelled()).turn.outcome == Cancelled()

    def test_cancelling_twice_is_cancelling_once(self, store: Store, other: Store) -> None:
        proof = start(store, room())
        store.cancel(proof.id, owner=ME)
        before = look(store, proof.session, [proof.id])

        other.cancel(proof.id, owner=ME)

        assert look(store, proof.session, [proof.id]) == before

    def test_a_holder_may_complete_a_turn_that_was_asked_to_stop(self, store: Store) -> None:
        proof = start(store, room())
        store.cancel(proof.id, owner=ME)

        assert store.finish(proof, Completed(), bodies=[Text("done anyway")]).turn.outcome == Completed()

    def test_the_next_turn_is_not_asked_to_stop_for_the_last_one(self, store: Store) -> None:
        proof = start(store, room())
        enqueue(store, proof.session)
        store.cancel(proof.id, owner=ME)

        following = store.finish(proof, Cancelled(), agents=[AGENT]).opened

        assert following is not None
        assert not store.renew(following).inbox.cancel

    def test_a_taken_over_turn_ends_at_once_and_keeps_its_output(self, store: Store, other: Store) -> None:
        proof = say(store, start(store, room()), Text("half an ans"))

        taken = other.cancel(proof.id, owner=ME, take=True)

        assert taken.state == "ended"
        assert isinstance(taken.outcome, Cancelled)
        hello, answer = said_in(store, proof.session)
        assert (hello.partial, answer.text, answer.partial) == (False, "half an ans", True)
        assert store.session(proof.session, owner=ME).running is None

    def test_a_holder_whose_turn_was_taken_can_no_longer_write(self, store: Store, other: Store) -> None:
        proof = start(store, room())
        other.cancel(proof.id, owner=ME, take=True)

        with refused(store, proof.session, LeaseLost, proof.id):
            store.checkpoint(proof, [Text("too late")])
        with refused(store, proof.session, LeaseLost, proof.id):
            store.finish(proof, Completed(), bodies=[Text("too late")])

    def test_taking_over_a_turn_leaves_the_waiting_turns(self, store: Store) -> None:
        proof = start(store, room())
        waiting = enqueue(store, proof.session)

        store.cancel(proof.id, owner=ME, take=True)

        opened = store.claim([AGENT], session=proof.session, owner=ME)
        assert opened is not None
        assert opened.id == waiting.id

    @every_ending
    def test_a_waiting_turn_that_is_cancelled_never_runs(self, store: Store, take: bool) -> None:
        session = new_session(store)
        waiting = enqueue(store, session)

        ended = store.cancel(waiting.id, owner=ME, take=take)

        assert (ended.state, ended.input, ended.started_at) == ("ended", None, None)
        assert isinstance(ended.outcome, Cancelled)
        assert store.claim([AGENT]) is None
        assert store.session(session, owner=ME).waiting == 0
        assert texts(store, session) == []

    @every_outcome
    @every_ending
    def test_cancelling_an_ended_turn_changes_nothing(self, store: Store, outcome: Outcome, take: bool) -> None:
        finished = run(store, room(), outcome=outcome)
        before = look(store, finished.turn.session, [finished.turn.id])

        assert store.cancel(finished.turn.id, owner=ME, take=take) == finished.turn

        assert look(store, finished.turn.session, [finished.turn.id]) == before

    # --- stored output ---------------------------------------------------------------------------------------------

    def test_identical_inputs_are_two_turns(self, store: Store) -> None:
        first, second = run(store, room(), "again", "yes"), run(store, room(), "again", "yes")

        assert first.turn.id != second.turn.id
        assert texts(store, first.turn.session) == ["again", "yes", "again", "yes"]

    @pytest.mark.parametrize(
        "text",
        ["naïve 日本語 🍵 \u202e", " a\nb\r\n\tc ", '" and \\ and \x07 and \x00', "x" * 100_000],
        ids=["every script", "white space", "control characters", "long"],
    )
    def test_stored_content_is_read_back_exactly(self, store: Store, text: str) -> None:
        proof = start(store, room(), [Text(text), Text(text)])

        store.finish(proof, Completed(), bodies=[Text(text), Thought(text), Text(text)])

        question, answer = said_in(store, proof.session)
        assert question.parts == (Text(text), Text(text))
        assert answer.parts == (Text(text), Thought(text), Text(text))

    def test_json_is_read_back_exactly(self, store: Store) -> None:
        value = {"": [1, -1.5, 2**53 + 1, -(2**63), 1e-300, True, None, {"ключ": ["\u2028", []]}], "b": {}}
        bodies: list[Body] = [ToolCall("c1", "x", value), ToolResult("c1", value), Custom("y", value)]

        finished = run(store, room(), [Custom("y", value)], bodies)

        assert [each.parts for each in said_in(store, finished.turn.session)] == [
            (Custom("y", value),),
            (ToolCall("c1", "x", value),),
            (ToolResult("c1", value),),
            (Custom("y", value),),
        ]

    @pytest.mark.parametrize("ending", ["finish", "take", "end", "reap"])
    def test_output_longer_than_a_message_may_be_is_stored_completely(
        self, open_another: OpenAnother, clock: ManualClock, ending: str
    ) -> None:
        store = open_another(limits=Limits(message_bytes=1_000))
        proof = start(store, room())
        words = [letter * 700 for letter in "abc"]
        for word in words:
            proof = say(store, proof, Text(word))

        match ending:
            case "finish":
                store.finish(proof, Completed())
            case "take":
                store.cancel(proof.id, owner=ME, take=True)
            case "end":
                store.end(proof.session, owner=ME)
            case _:
                clock.advance(LEASE)

        assert store.turn(proof.id, owner=ME).state == "ended"
        assert "".join(texts(store, proof.session)[1:]) == "".join(words)

    def test_an_unknown_turn_is_not_found(self, store: Store) -> None:
        session = new_session(store)
        gone = enqueue(store, session).id
        store.delete(session, owner=ME)

        with pytest.raises(NotFound) as caught:
            store.turn(gone, owner=ME)
        assert caught.value.hint
