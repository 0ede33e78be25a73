"""Recorded turns: the finished messages of a caller that runs its own agent."""

import pytest

from backstay.errors import InvalidPayload, RequestMismatch, SessionBusy, TooLarge
from backstay.model import event, message
from backstay.model.content import Custom, Text, Thought, ToolCall, ToolResult
from backstay.model.limits import Limits
from backstay.model.message import NewMessage
from backstay.model.turn import Completed
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import LEASE, ContractBase, OpenAnother
from tests.contract.builders import (
    AGENT,
    ME,
    bodies_of,
    enqueue,
    look,
    new_session,
    refused,
    room,
    said_in,
    say,
    start,
    texts,
)

HELLO = [message.user("hello"), message.assistant("hi")]


def call(*names: str) -> NewMessage:
    """An answer that calls these tools."""
    return message.assistant([Text("one moment"), *(ToolCall(name, "search") for name in names)])


def result(*names: str) -> NewMessage:
    """The results of these calls."""
    return message.tool([ToolResult(name, "found") for name in names])


class RecordContract(ContractBase):
    """Facts about recorded turns."""

    def test_recorded_messages_are_one_ended_turn(self, store: Store, other: Store, clock: ManualClock) -> None:
        before = store.create(owner=ME)

        recorded = store.record(before.id, HELLO, owner=ME)

        turn, session = other.turn(recorded.turn.id, owner=ME), other.session(before.id, owner=ME)
        assert (recorded.turn, recorded.session, recorded.repeated) == (turn, session, False)
        assert (turn.state, turn.outcome, turn.agent, turn.input) == ("ended", Completed(), None, None)
        assert (turn.started_at, turn.ended_at) == (clock.now(), clock.now())
        assert (session.turns, session.length, session.preview) == (1, 2, "hi")
        assert (session.revision, session.context) == (before.revision + 1, before.context + 1)

    def test_recorded_messages_are_read_as_they_were_given(self, store: Store) -> None:
        session = new_session(store)
        given = [
            message.user([Text("look"), Custom("place", {"lat": 1.5})]),
            NewMessage(role="system", parts=(Text("be brief"),)),
            message.assistant([Thought("hm"), ToolCall("c1", "search", {"q": ["tea"]}, approval=True)]),
            message.tool(ToolResult("c1", {"found": None}, error=True)),
            NewMessage(role="assistant", parts=(Text("half an ans"),), partial=True),
        ]

        recorded = store.record(session, given, owner=ME)

        said = said_in(store, session)
        assert [(each.role, each.parts, each.partial) for each in said] == [
            (each.role, each.parts, each.partial) for each in given
        ]
        assert [each.id for each in said] == list(recorded.messages)
        assert [each.position for each in said] == [0, 1, 2, 3, 4]
        assert {each.turn for each in said} == {recorded.turn.id}

    def test_dictionaries_of_the_chat_completions_api_are_recorded_too(self, store: Store) -> None:
        call = {"id": "call_1", "type": "function", "function": {"name": "sum", "arguments": '{"of": [1, 2]}'}}
        session = new_session(store)

        store.record(
            session,
            [
                {"role": "user", "content": "add"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_1", "content": "3"},
                message.assistant("three"),
            ],
            owner=ME,
        )

        stored = store.messages(session, owner=ME).messages
        assert [(one.role, one.parts) for one in stored] == [
            ("user", (Text("add"),)),
            ("assistant", (ToolCall("call_1", "sum", {"of": [1, 2]}),)),
            ("tool", (ToolResult("call_1", "3"),)),
            ("assistant", (Text("three"),)),
        ]

    def test_a_malformed_dictionary_is_refused_and_stores_nothing(self, store: Store) -> None:
        session = new_session(store)

        with pytest.raises(InvalidPayload, match=r"messages\[1\] has the role 'robot'"):
            store.record(session, [message.user("hi"), {"role": "robot", "content": "beep"}], owner=ME)

        assert store.messages(session, owner=ME).messages == ()

    def test_a_recorded_turn_is_one_event_with_its_messages(self, store: Store) -> None:
        session = new_session(store)

        store.record(session, HELLO, owner=ME)

        assert bodies_of(store, session)[1:] == [event.TurnRecorded(said_in(store, session))]

    def test_recording_at_a_new_address_makes_its_session(self, store: Store) -> None:
        recorded = store.record(room(), HELLO, owner=ME)

        assert store.resolve(room(), owner=ME).session.id == recorded.session.id

    def test_identical_recordings_are_two_turns(self, store: Store) -> None:
        first, second = (store.record(room(), HELLO, owner=ME) for _ in range(2))

        assert first.turn.id != second.turn.id
        assert texts(store, first.session.id) == ["hello", "hi", "hello", "hi"]

    def test_a_recorded_turn_has_no_calls_of_ours(self, store: Store) -> None:
        recorded = store.record(room(), [call("c1"), result("c1")], owner=ME)

        assert store.calls(recorded.turn.id, owner=ME) == ()

    def test_recorded_messages_are_stored_all_or_none(self, store: Store) -> None:
        session = new_session(store)
        store.record(session, HELLO, owner=ME)

        with refused(store, session, InvalidPayload):
            store.record(session, [*HELLO, message.user("\ud800")], owner=ME)
        with refused(store, session, InvalidPayload):
            store.record(session, [*HELLO, result("no such call")], owner=ME)

    def test_as_many_messages_are_recorded_at_once_as_the_limit_allows(self, open_another: OpenAnother) -> None:
        store = open_another(limits=Limits(messages_per_record=4))
        session = new_session(store)

        store.record(session, HELLO * 2, owner=ME)

        with refused(store, session, TooLarge):
            store.record(session, [*HELLO, *HELLO, message.user("one too many")], owner=ME)

    # --- pairing ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "pieces",
        [
            [[call("c1"), result("c1")]],
            [[call("c1")], [result("c1")]],
            [[call("c1", "c2")], [result("c2")], [result("c1")]],
            [[call("c1", "c2"), result("c1")], [result("c2"), message.assistant("done")]],
            [[call("c1"), result("c1"), call("c1"), result("c1")]],
            [[message.assistant([ToolCall("c1", "search"), ToolResult("c1", "by the provider")])]],
            [[call("c1")], [message.user("never mind")]],
            [[call("c1")], [message.assistant("never mind")]],
        ],
        ids=[
            "at once",
            "piece by piece",
            "in any order",
            "with what follows",
            "again under the same id",
            "within one answer",
            "left open by a person",
            "left open by the agent",
        ],
    )
    def test_a_result_may_follow_its_call(self, store: Store, pieces: list[list[NewMessage]]) -> None:
        session = new_session(store)

        for piece in pieces:
            store.record(session, piece, owner=ME)

        given = [each.parts for piece in pieces for each in piece]
        assert [each.parts for each in said_in(store, session)] == given

    @pytest.mark.parametrize(
        ("before", "bad"),
        [
            ([], [result("c1")]),
            ([], [result("c1"), call("c1")]),
            ([], [call("c1"), result("c2")]),
            ([], [call("c1"), result("c1"), result("c1")]),
            ([], [call("c1"), result("c1", "c1")]),
            ([], [call("c1", "c1")]),
            ([call("c1"), result("c1")], [result("c1")]),
            ([call("c1"), message.user("never mind")], [result("c1")]),
            ([call("c1"), message.assistant("never mind")], [result("c1")]),
            ([call("c1")], [message.user("never mind"), result("c1")]),
            ([], [call("c1"), NewMessage(role="system", parts=(Text("be brief"),)), result("c1")]),
            ([call("c1"), message.summary("what came before")], [result("c1")]),
            ([], [message.assistant([ToolResult("c1"), ToolCall("c1", "search")])]),
            ([], [message.user(ToolResult("c1"))]),
            ([call("c1")], [message.user(ToolResult("c1"))]),
            ([], [message.user(ToolCall("c1", "search"))]),
            ([], [message.tool(ToolCall("c1", "search"))]),
        ],
    )
    def test_a_result_without_an_open_call_is_refused(
        self, store: Store, before: list[NewMessage], bad: list[NewMessage]
    ) -> None:
        session = new_session(store)
        store.record(session, [*HELLO, *before], owner=ME)

        with refused(store, session, InvalidPayload):
            store.record(session, bad, owner=ME)

    def test_a_result_answers_no_call_of_another_session(self, store: Store) -> None:
        session = new_session(store)
        store.record(new_session(store), [call("c1")], owner=ME)

        with refused(store, session, InvalidPayload):
            store.record(session, [result("c1")], owner=ME)

    def test_a_call_that_an_undo_took_back_is_no_longer_open(self, store: Store) -> None:
        session = new_session(store)
        store.record(session, HELLO, owner=ME)
        store.record(session, [call("c1")], owner=ME)
        store.undo(session, owner=ME)

        with refused(store, session, InvalidPayload):
            store.record(session, [result("c1")], owner=ME)

        store.redo(session, owner=ME)
        store.record(session, [result("c1")], owner=ME)

    # --- behind a running turn --------------------------------------------------------------------------------------

    def test_behind_a_running_turn_recorded_messages_wait(self, store: Store, other: Store) -> None:
        proof = start(store, room(), "busy")

        recorded = other.record(room(), HELLO, owner=ME)

        assert (recorded.turn.state, recorded.messages, recorded.session.waiting) == ("waiting", (), 1)
        assert store.waiting(proof.session, owner=ME) == (recorded.turn,)
        assert texts(store, proof.session) == ["busy"]
        assert store.renew(proof).inbox.waiting == 1

    def test_the_end_of_the_running_turn_adds_waiting_recorded_messages(self, store: Store, other: Store) -> None:
        proof = start(store, room(), "busy")
        first = other.record(room(), HELLO, owner=ME).turn
        second = other.record(room(), [call("c1"), result("c1")], owner=ME).turn

        store.finish(proof, Completed(), bodies=[Text("done")])

        assert texts(store, proof.session) == ["busy", "done", "hello", "hi", "one moment", ""]
        assert [each.turn for each in said_in(store, proof.session)[2:]] == [first.id] * 2 + [second.id] * 2
        for turn in (first, second):
            ended = store.turn(turn.id, owner=ME)
            assert (ended.state, ended.outcome, ended.input) == ("ended", Completed(), None)
        session = store.session(proof.session, owner=ME)
        assert (session.waiting, session.running, session.turns) == (0, None, 3)
        kinds = [type(each) for each in bodies_of(store, proof.session)[-3:]]
        assert kinds == [event.TurnEnded, event.TurnRecorded, event.TurnRecorded]

    def test_waiting_recorded_messages_keep_their_place_in_the_queue(self, store: Store) -> None:
        proof = start(store, room(), "one")
        enqueue(store, proof.session, "two")
        store.record(room(), [message.user("three")], owner=ME)
        enqueue(store, proof.session, "four")

        second = store.finish(proof, Completed(), agents=[AGENT]).opened
        assert second is not None
        assert texts(store, proof.session) == ["one", "two"]
        last = store.finish(second, Completed(), agents=[AGENT]).opened

        assert last is not None
        assert texts(store, proof.session) == ["one", "two", "three", "four"]

    def test_recorded_messages_wait_behind_a_turn_that_has_not_started(self, store: Store) -> None:
        session = new_session(store)
        enqueue(store, session, "one")

        recorded = store.record(session, [message.user("two")], owner=ME).turn

        assert recorded.state == "waiting"
        proof = store.claim([AGENT])
        assert proof is not None
        store.finish(proof, Completed())
        assert texts(store, session) == ["one", "two"]

    @pytest.mark.parametrize("ending", ["taken", "reaped"])
    def test_waiting_recorded_messages_are_added_after_any_outcome(
        self, store: Store, other: Store, clock: ManualClock, ending: str
    ) -> None:
        proof = say(store, start(store, room(), "busy"), Text("half an ans"))
        recorded = store.record(room(), HELLO, owner=ME).turn

        if ending == "taken":
            other.cancel(proof.id, owner=ME, take=True)
        else:
            clock.advance(LEASE)
            other.reap()

        assert other.turn(recorded.id, owner=ME).outcome == Completed()
        assert texts(other, proof.session) == ["busy", "half an ans", "hello", "hi"]

    def test_behind_a_dead_holder_recorded_messages_are_added_at_once(
        self, store: Store, other: Store, clock: ManualClock
    ) -> None:
        proof = start(store, room(), "busy")
        clock.advance(LEASE)

        recorded = other.record(room(), HELLO, owner=ME)

        assert recorded.turn.state == "ended"
        assert texts(other, proof.session) == ["busy", "hello", "hi"]

    def test_recorded_messages_are_rejected_in_a_busy_session_with_reject(self, store: Store, other: Store) -> None:
        proof = start(store, room())
        waiting = new_session(store)
        enqueue(store, waiting)

        with refused(store, proof.session, SessionBusy, proof.id):
            other.record(room(), HELLO, owner=ME, if_busy="reject")
        with refused(store, waiting, SessionBusy):
            other.record(waiting, HELLO, owner=ME, if_busy="reject")

    def test_in_an_idle_session_reject_records(self, store: Store) -> None:
        assert store.record(room(), HELLO, owner=ME, if_busy="reject").turn.state == "ended"

    @pytest.mark.parametrize("mode", ["steer", "replace", "fork", "nonsense", None])
    def test_finished_messages_neither_steer_nor_replace_nor_fork(self, store: Store, mode: object) -> None:
        session = new_session(store)

        with refused(store, session, InvalidPayload):
            store.record(session, HELLO, owner=ME, if_busy=mode)  # type: ignore[arg-type]  # the wrong type is the point

    def test_recorded_messages_that_could_never_be_added_are_rejected_at_once(self, store: Store) -> None:
        proof = start(store, room())

        with refused(store, proof.session, InvalidPayload, proof.id):
            store.record(room(), [result("c1")], owner=ME)
        with refused(store, proof.session, InvalidPayload, proof.id):
            store.record(room(), [call("c1", "c1")], owner=ME)

        store.finish(proof, Completed())

    # --- requests that are sent twice -------------------------------------------------------------------------------

    def test_a_repeated_recording_is_the_first_turn(self, store: Store, other: Store) -> None:
        first = store.record(room(), HELLO, owner=ME, request_id="r1")
        before = look(store, first.session.id, [first.turn.id])

        again = other.record(room(), HELLO, owner=ME, request_id="r1", expect_revision=1)

        assert (again.repeated, again.turn, again.session) == (True, first.turn, first.session)
        assert look(store, first.session.id, [first.turn.id]) == before

    def test_a_repeated_recording_that_waits_goes_in_once(self, store: Store) -> None:
        proof = start(store, room(), "busy")

        turns = {store.record(room(), HELLO, owner=ME, request_id="r1").turn.id for _ in range(3)}
        store.finish(proof, Completed())
        turns.add(store.record(room(), HELLO, owner=ME, request_id="r1").turn.id)

        assert len(turns) == 1
        assert texts(store, proof.session) == ["busy", "hello", "hi"]

    def test_a_request_id_with_other_messages_is_refused(self, store: Store) -> None:
        first = store.record(room(), HELLO, owner=ME, request_id="r1")
        others = [HELLO[:1], HELLO[::-1], [*HELLO, *HELLO], [message.assistant("hello"), message.user("hi")]]

        for messages in others:
            with refused(store, first.session.id, RequestMismatch, first.turn.id):
                store.record(room(), messages, owner=ME, request_id="r1")
        with refused(store, first.session.id, RequestMismatch, first.turn.id):
            store.submit(room(), "hello", owner=ME, request_id="r1")

    def test_a_recording_for_the_current_revision_is_accepted(self, store: Store) -> None:
        session = store.resolve(room(), owner=ME).session

        recorded = store.record(room(), HELLO, owner=ME, expect_revision=session.revision)

        assert recorded.session.revision == session.revision + 1
