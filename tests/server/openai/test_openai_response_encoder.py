"""The response encoder is a pure function: the events of any turn give one order with the same numbers."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from backstay.model.content import Body, Custom, Text, Thought, ToolCall, ToolResult, Usage
from backstay.model.event import (
    Event,
    EventBody,
    SteeringTaken,
    TurnEnded,
    TurnFolded,
    TurnStarted,
    TurnSubmitted,
    event_of,
)
from backstay.model.history.turn_messages import messages_of
from backstay.model.ids import MessageId, SessionId, TurnId, message_of
from backstay.model.message import Message
from backstay.model.turn import Cancelled, Completed, Failed, Interrupted, Outcome, TurnInfo
from backstay.server.openai.encoding.chat_completion import ChatEncoder, answer_of
from backstay.server.openai.encoding.items import items_of
from backstay.server.openai.encoding.response_encoder import encode_turn
from backstay.server.openai.encoding.response_stream import ResponseStreamEncoder

TURN = TurnId("trn_01m7j9vf4jf4msapk2gvh096md")
STEER = TurnId("trn_01m7j9vf4jf4msapk2gvh096mf")
SESSION = SessionId("ses_01m7j9vf4jf4msapk2gvh096mc")
INPUT = Message(
    id=MessageId("msg_01m7j9vf4jf4msapk2gvh096me"),
    position=0,
    turn=TURN,
    role="user",
    parts=(Text("hello"), Custom("request", {"metadata": {"a": "b"}})),
    at=5_000,
)

words = st.text('ab é\n"', min_size=1, max_size=6)
outcomes = st.sampled_from([Completed(), Cancelled("asked"), Failed("broken"), Interrupted("gone")])


@st.composite
def turn_outputs(draw: st.DrawFn) -> list[Body | SteeringTaken]:
    """Possible output of an agent in a turn, with steering between; some calls never return."""
    said: list[Body | SteeringTaken] = []
    running: list[str] = []
    for number in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["text", "thought", "call", "client", "return", "usage", "custom", "steer"]))
        match kind:
            case "text":
                said.append(Text(draw(words)))
            case "thought":
                said.append(Thought(draw(words)))
            case "call":
                said.append(ToolCall(f"c{number}", "look", {"at": draw(words)}))
                running.append(f"c{number}")
            case "client":
                said.append(ToolCall(f"c{number}", "ask", {"at": draw(words)}, client=True))
            case "return" if running:
                name = running.pop(draw(st.integers(0, len(running) - 1)))
                said.append(ToolResult(name, draw(words), error=draw(st.booleans())))
            case "usage":
                said.append(Usage(input_tokens=2, output_tokens=3))
            case "custom":
                said.append(Custom("note", {"n": number}))
            case "steer":
                said.append(SteeringTaken(STEER, (Text(draw(words)),)))
            case _:
                pass
    return said


def turn(outcome: Outcome, usage: Usage) -> TurnInfo:
    return TurnInfo(
        id=TURN,
        session=SESSION,
        root=TURN,
        agent="default",
        state="ended",
        outcome=outcome,
        steer=False,
        taken_by=None,
        cancel_requested=False,
        input=None,
        request_id=None,
        usage=usage,
        created_at=5_000,
        started_at=5_000,
        ended_at=9_000,
        event=2,
    )


def events_of(said: list[Body | SteeringTaken], outcome: Outcome, *, waited: bool) -> list[Event]:
    """The events of a turn with this output."""
    bodies: list[EventBody] = [TurnSubmitted("default", INPUT.parts)] if waited else []
    bodies += [TurnStarted("default", INPUT)]
    bodies += [body if isinstance(body, SteeringTaken) else event_of(body, "key") for body in said]
    bodies += [TurnEnded(outcome)]
    return [event(number, body) for number, body in enumerate(bodies, start=2)]


def event(number: int, body: EventBody) -> Event:
    return Event(session=SESSION, number=number, last=number, fence=1, at=9_000, turn=TURN, body=body)


def stored(events: list[Event], outcome: Outcome) -> list[Message]:
    """The messages that the store keeps of it."""
    new = messages_of([one.body for one in events], partial=not isinstance(outcome, Completed))
    return [
        Message(
            id=message_of(TURN, place),
            position=place + 1,
            turn=TURN,
            role=one.role,
            parts=one.parts,
            at=9_000,
            partial=one.partial,
        )
        for place, one in enumerate(new)
    ]


def used(said: list[Body | SteeringTaken]) -> Usage:
    return sum((one for one in said if isinstance(one, Usage)), start=Usage())


@settings(deadline=None)
@given(said=turn_outputs(), outcome=outcomes, waited=st.booleans())
def test_sequence_numbers_start_at_zero_and_the_end_is_sent_once(
    said: list[Body | SteeringTaken], outcome: Outcome, waited: bool
) -> None:
    narrator, told = encode_turn(turn(outcome, used(said)), events_of(said, outcome, waited=waited))

    assert [one["sequence_number"] for one in told] == list(range(len(told)))
    begin = ["response.created", "response.queued"] if waited else ["response.created"]
    assert [one["type"] for one in told[: len(begin) + 1]] == [*begin, "response.in_progress"]
    endings = [one["type"] for one in told if "response" in one][len(begin) + 1 :]
    ended = {Completed: "response.completed", Failed: "response.failed", Interrupted: "response.failed"}
    assert endings == [ended.get(type(outcome), "response.incomplete")]
    assert told[-1]["response"] == narrator.response()


@settings(deadline=None)
@given(said=turn_outputs(), outcome=outcomes)
def test_each_item_is_opened_streamed_and_closed_in_order(said: list[Body | SteeringTaken], outcome: Outcome) -> None:
    _, told = encode_turn(turn(outcome, used(said)), events_of(said, outcome, waited=False))
    output = told[-1]["response"]["output"]

    opened = [one["output_index"] for one in told if one["type"] == "response.output_item.added"]
    assert opened == list(range(len(output)))
    for index, item in enumerate(output):
        own = [one for one in told if one.get("output_index") == index]
        assert own[0]["type"] == "response.output_item.added"
        assert own[-1] == own[-1] | {"type": "response.output_item.done", "item": item}
        assert {one.get("item_id", item["id"]) for one in own} == {item["id"]}
        assert [one["type"].removeprefix("response.") for one in own[1:-1]] == inner(item, own)
        pieces = "".join(one["delta"] for one in own if one["type"].endswith(".delta"))
        assert pieces == said_in(item)


def inner(item: dict[str, Any], own: list[dict[str, Any]]) -> list[str]:
    """The order of events that the API guarantees between the opening and the closing of an item."""
    deltas = sum(one["type"].endswith(".delta") for one in own)
    match item["type"]:
        case "message":
            return [
                "content_part.added",
                *["output_text.delta"] * deltas,
                "output_text.done",
                "content_part.done",
            ]
        case "reasoning":
            return [
                "reasoning_summary_part.added",
                *["reasoning_summary_text.delta"] * deltas,
                "reasoning_summary_text.done",
                "reasoning_summary_part.done",
            ]
        case "mcp_call":
            ended = "completed" if item["status"] == "completed" else "failed"
            arguments = ["mcp_call_arguments.delta", "mcp_call_arguments.done"]
            return ["mcp_call.in_progress", *arguments, f"mcp_call.{ended}"]
        case _:
            return ["function_call_arguments.delta", "function_call_arguments.done"]


def said_in(item: dict[str, Any]) -> str:
    match item["type"]:
        case "message":
            return str(item["content"][0]["text"])
        case "reasoning":
            return str(item["summary"][0]["text"])
        case _:
            return str(item["arguments"])


@settings(deadline=None)
@given(said=turn_outputs(), outcome=outcomes)
def test_streamed_items_equal_listed_items_with_the_same_ids(
    said: list[Body | SteeringTaken], outcome: Outcome
) -> None:
    events = events_of(said, outcome, waited=False)
    narrator, _ = encode_turn(turn(outcome, used(said)), events)

    listed = [item.value for item in items_of(stored(events, outcome))]
    assistants = [item for item in listed if item.get("role") != "user"]
    assert [without_status(item) for item in narrator.response()["output"]] == [
        without_status(item) for item in assistants
    ]
    messages = stored(events, outcome)
    assert narrator.last_message in {message.id for message in messages} | {INPUT.id}


def without_status(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != "status"}


@settings(deadline=None)
@given(said=turn_outputs(), outcome=outcomes, waited=st.booleans(), data=st.data())
def test_a_stream_cut_at_any_number_continues_at_the_next(
    said: list[Body | SteeringTaken], outcome: Outcome, waited: bool, data: st.DataObject
) -> None:
    ended, events = turn(outcome, used(said)), events_of(said, outcome, waited=waited)
    _, told = encode_turn(ended, events)
    after = data.draw(st.integers(-1, len(told) - 1))

    rest = b"".join(map(ResponseStreamEncoder(ended, after).encode_event, events))

    frames = [msgspec.json.decode(line[6:]) for line in rest.splitlines() if line.startswith(b"data: ")]
    assert frames == msgspec.json.decode(msgspec.json.encode(told[after + 1 :]))
    assert msgspec.json.encode(encode_turn(ended, events)[1]) == msgspec.json.encode(told)


@settings(deadline=None)
@given(said=turn_outputs(), outcome=outcomes)
def test_a_folded_turn_gives_the_same_response_in_fewer_pieces(
    said: list[Body | SteeringTaken], outcome: Outcome
) -> None:
    ended, events = turn(outcome, used(said)), events_of(said, outcome, waited=False)
    messages = (INPUT, *stored(events, outcome))
    fold = [event(2, TurnFolded(2, 20, "default", outcome, (), messages))]

    whole, _ = encode_turn(ended, events)
    folded, told = encode_turn(ended, fold)

    assert folded.folded
    assert folded.response() == whole.response()
    assert told[-1]["sequence_number"] == len(told) - 1
    assert answer_of(fold, ended)[:2] == answer_of(events, ended)[:2]


@settings(deadline=None)
@given(said=turn_outputs(), outcome=outcomes)
def test_the_chunks_of_a_completion_are_its_answer(said: list[Body | SteeringTaken], outcome: Outcome) -> None:
    ended, events = turn(outcome, used(said)), events_of(said, outcome, waited=False)
    teller = ChatEncoder(ended, usage=True)

    lines = (b"".join(map(teller.encode_event, events)) + teller.closing_frames()).splitlines()

    chunks = [msgspec.json.decode(line[6:]) for line in lines if line.startswith(b"data: {")]
    answer = answer_of(events, ended)
    deltas = [one["choices"][0]["delta"] for one in chunks if one.get("choices")]
    assert "".join(delta.get("content") or "" for delta in deltas) == answer.text
    assert sum(len(delta.get("tool_calls", ())) for delta in deltas) == len(answer.calls)
    assert (lines[-2] == b"data: [DONE]") == isinstance(outcome, Completed) == (answer.failure is None)
