"""Tools of the OpenAI-compatible agent: described to the model, run through the turn, always answered."""

import asyncio
import datetime as dt
import enum
import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
import pytest

from backstay.agents.provider.openai_compatible import OpenAICompatible
from backstay.agents.scripted.builtin_tools import calculator
from backstay.agents.tools import Tool, tool
from backstay.errors import AgentFailed, ConfigError, LeaseLost
from backstay.model.content import Text, ToolCall, ToolResult, Usage
from tests.agents.fake_turn import LooseTurn, output_of
from tests.agents.provider.fake_provider import (
    DONE,
    FakeProvider,
    Reply,
    answers,
    calls,
    finish,
    says,
    tally,
    wants,
    words,
)
from tests.agents.provider.provider_turn import ask


def add(x: int, y: int = 1) -> int:
    """Add two numbers."""
    return x + y


def schema_of(function: Any) -> dict[str, Any]:
    """The schema of this function's parameters, as the model gets it."""
    [described] = ask(answers("hi"), tools=[function]).requests[0].body["tools"]
    schema: dict[str, Any] = described["function"]["parameters"]
    return schema


def results_in(messages: Any) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "tool"]


def test_a_function_is_described_by_its_name_its_docstring_and_its_hints() -> None:
    [described] = ask(answers("hi"), tools=[add]).requests[0].body["tools"]

    assert described == {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 1}},
                "required": ["x"],
                "additionalProperties": False,
            },
        },
    }


def test_a_tool_of_ours_is_described_like_a_function() -> None:
    assert schema_of(calculator)["properties"] == {"expression": {"type": "string"}}


def test_the_key_of_a_call_is_ours_to_give_and_hidden_from_the_model() -> None:
    def pay(amount: int, key: str) -> str:
        keys.append(key)
        return "paid"

    keys: list[str] = []
    turn = LooseTurn()
    answer = ask(calls(wants(0, "c", "pay", '{"amount": 5}')), answers("done"), turn=turn, tools=[pay])

    assert set(answer.requests[0].body["tools"][0]["function"]["parameters"]["properties"]) == {"amount"}
    assert keys == turn.keys
    assert turn.calls == [("pay", {"amount": 5})]


def test_hints_of_every_kind_become_a_schema() -> None:
    class Line(msgspec.Struct):
        text: str

    def draw(
        size: Annotated[float, msgspec.Meta(gt=0, description="in metres")],
        lines: list[Line],
        colour: Literal["red", "blue"] = "red",
        tags: list[str] = ["a"],  # noqa: B006  # people write this
        anything: Any = None,
    ) -> None:
        """Draw."""

    schema = schema_of(draw)

    assert schema["required"] == ["size", "lines"]
    assert schema["properties"]["size"] == {"type": "number", "exclusiveMinimum": 0, "description": "in metres"}
    assert schema["properties"]["lines"] == {"type": "array", "items": {"$ref": "#/$defs/Line"}}
    assert schema["properties"]["colour"] == {"enum": ["blue", "red"], "default": "red"}
    assert schema["properties"]["tags"] == {"type": "array", "items": {"type": "string"}}
    assert schema["$defs"]["Line"]["properties"] == {"text": {"type": "string"}}


def test_a_function_without_parameters_is_an_object_without_properties() -> None:
    def now() -> str:
        return "noon"

    assert schema_of(now) == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def test_a_function_is_given_its_own_types_and_its_answer_becomes_json() -> None:
    class Mood(enum.Enum):
        GOOD = "good"

    class Day(msgspec.Struct):
        day: dt.date
        mood: Mood

    def tomorrow(day: dt.date, mood: Mood, step: int = 1) -> Day:
        return Day(day + dt.timedelta(days=step), mood)

    wish = wants(0, "c", "tomorrow", '{"day": "2027-01-15", "mood": "good"}')
    answer = ask(calls(wish), answers("ok"), tools=[tomorrow])

    assert [json.loads(result) for result in results_in(answer.sent[1])] == [{"day": "2027-01-16", "mood": "good"}]


def test_a_tool_is_called_and_its_result_given_to_the_model() -> None:
    turn = LooseTurn("2 and 3?")

    answer = ask(
        calls(words("Let me see."), wants(0, "c1", "add", '{"x": 2, "y": 3}')), answers("5"), turn=turn, tools=[add]
    )

    assert answer.bodies == [Text("Let me see."), Text("5")]
    assert turn.calls == [("add", {"x": 2, "y": 3})]
    assert answer.sent[1] == [
        {"role": "user", "content": "2 and 3?"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"x":2,"y":3}'}}],
        },
        {"role": "tool", "content": "5", "tool_call_id": "c1"},
    ]


def test_arguments_come_in_pieces_and_calls_side_by_side() -> None:
    turn = LooseTurn()
    pieces = [
        wants(0, "a", "add", ""),
        wants(0, None, None, '{"x"'),
        wants(1, "b", "add", '{"x": 10, '),
        wants(0, None, None, ": 1}"),
        wants(1, None, None, '"y": 10}'),
    ]

    answer = ask(calls(*pieces), answers("ok"), turn=turn, tools=[add])

    assert turn.calls == [("add", {"x": 1}), ("add", {"x": 10, "y": 10})]
    assert results_in(answer.sent[1]) == ["2", "20"]


def test_calls_of_one_step_run_at_the_same_time_and_answer_in_their_order() -> None:
    async def meet(name: str) -> str:
        """Returns only when both are here."""
        await asyncio.wait_for(barrier.wait(), timeout=90)
        return f"{name} met"

    barrier = asyncio.Barrier(2)
    answer = ask(
        calls(wants(0, "a", "meet", '{"name": "Ann"}'), wants(1, "b", "meet", '{"name": "Bob"}')),
        answers("ok"),
        tools=[meet],
    )

    assert results_in(answer.sent[1]) == ["Ann met", "Bob met"]


def test_the_model_gets_the_error_of_one_tool_beside_the_result_of_another() -> None:
    def divide(x: int, y: int) -> float:
        return x / y

    answer = ask(
        calls(wants(0, "a", "divide", '{"x": 1, "y": 0}'), wants(1, "b", "divide", '{"x": 1, "y": 2}')),
        answers("ok"),
        tools=[divide],
    )

    failed, worked = results_in(answer.sent[1])
    assert failed.startswith("Error: divide failed")
    assert worked == "0.5"
    assert answer.text == "ok"


def test_the_model_learns_that_a_tool_may_have_run_and_it_is_not_run_again() -> None:
    turn = LooseTurn(interrupted=["add"])

    answer = ask(calls(wants(0, "a", "add", '{"x": 1}')), answers("Did it?"), turn=turn, tools=[add])

    assert results_in(answer.sent[1])[0].startswith("Error: add was interrupted")
    assert len(turn.calls) == 1


def test_a_lost_lease_is_not_reported_to_the_model() -> None:
    class LostTurn(LooseTurn):
        async def call(self, tool: Tool, arguments: Any, *, run_again: bool = False, id: str | None = None) -> Any:
            raise LeaseLost

    answer = ask(calls(wants(0, "a", "add", '{"x": 1}')), turn=LostTurn(), tools=[add])

    assert isinstance(answer.error, LeaseLost)
    assert len(answer.requests) == 1


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("add", '{"x": ', "not a JSON object"),
        ("add", "[1]", "not a JSON object"),
        ("add", '"x"', "not a JSON object"),
        ("add", '{"x": "one"}', "$.x"),
        ("add", "{}", "x"),
        ("add", '{"x": 1, "z": 2}', "z"),
        ("add", '{"x": 1, "key": "mine"}', "key"),
        ("add", '{"x": 99999999999999999999}', "64 bits"),
        ("add", '{"x": ' + "[" * 5000 + "]" * 5000 + "}", "not a JSON object"),
        ("multiply", "{}", "the tools are: add"),
        ("", "{}", "the tools are: add"),
    ],
)
def test_an_invalid_call_does_not_run_and_the_model_gets_the_reason(name: str, arguments: str, reason: str) -> None:
    turn = LooseTurn()

    answer = ask(calls(wants(0, "a", name, arguments)), answers("Sorry."), turn=turn, tools=[add])

    assert turn.calls == []
    assert answer.error is None
    assert reason in results_in(answer.sent[1])[0]
    [called] = [body for body in answer.bodies if isinstance(body, ToolCall)]
    [result] = [body for body in answer.bodies if isinstance(body, ToolResult)]
    assert result.id == called.id
    assert result.error
    sent = answer.sent[1][1]["tool_calls"][0]["function"]
    assert isinstance(json.loads(sent["arguments"]), dict)


def test_missing_arguments_are_empty_arguments() -> None:
    def now() -> str:
        return "noon"

    for arguments in ("", None, " "):
        assert results_in(ask(calls(wants(0, "a", "now", arguments)), answers("ok"), tools=[now]).sent[1]) == ["noon"]


def test_arguments_that_come_as_an_object_are_understood() -> None:
    assert results_in(ask(calls(wants(0, "a", "add", {"x": 1})), answers("ok"), tools=[add]).sent[1]) == ["2"]


@pytest.mark.parametrize(
    "wished",
    [
        pytest.param([wants(0, "same", "add", '{"x": 1}'), wants(1, "same", "add", '{"x": 2}')], id="one id twice"),
        pytest.param([wants(0, None, "add", '{"x": 1}'), wants(1, "", "add", '{"x": 2}')], id="no ids"),
        pytest.param([wants(0, "a", "add", '{"x": 1}'), wants(0, "b", "add", '{"x": 2}')], id="one index twice"),
        pytest.param([wants(None, "a", "add", '{"x": 1}'), wants(None, "b", "add", '{"x": 2}')], id="no index"),
        pytest.param([wants(7, "a", "add", '{"x": 1}'), wants(3, "b", "add", '{"x": 2}')], id="odd indexes"),
    ],
)
def test_two_calls_stay_separate_despite_wrong_indexes(wished: list[bytes]) -> None:
    answer = ask(calls(*wished), answers("ok"), tools=[add])

    assert results_in(answer.sent[1]) == ["2", "3"]
    assert len({call["id"] for call in answer.sent[1][1]["tool_calls"]}) == 2


def test_steering_reaches_the_model_between_two_steps() -> None:
    turn = LooseTurn("go", steering=["faster"])

    answer = ask(calls(wants(0, "a", "add", '{"x": 1}')), answers("ok"), turn=turn, tools=[add])

    assert answer.sent[1][-1] == {"role": "user", "content": "faster"}
    assert answer.text == "ok"


def test_usage_is_reported_for_every_step() -> None:
    first = says(wants(0, "a", "add", '{"x": 1}'), finish("tool_calls"), tally(prompt_tokens=1), DONE)
    second = says(words("ok"), finish(), tally(prompt_tokens=2), DONE)

    answer = ask(first, second, tools=[add])

    assert [body.input_tokens for body in answer.bodies if isinstance(body, Usage)] == [1, 2]


def test_a_model_that_never_stops_calling_tools_fails_at_the_step_limit() -> None:
    turn = LooseTurn()
    again = calls(wants(0, "a", "add", '{"x": 1}'))

    answer = ask(again, again, again, turn=turn, tools=[add], step_limit=3)

    assert isinstance(answer.error, AgentFailed)
    assert "step_limit" in str(answer.error)
    assert len(answer.requests) == 3
    assert len(turn.calls) == 2


def test_a_turn_that_was_cancelled_during_its_tools_does_not_ask_again() -> None:
    def stop() -> str:
        turn.cancelled = True
        return "stopped"

    turn = LooseTurn()
    answer = ask(calls(wants(0, "a", "stop", "{}")), turn=turn, tools=[stop])

    assert (len(answer.requests), answer.error) == (1, None)


def test_steps_share_one_connection() -> None:
    async def wishes(reply: Reply) -> None:
        """The last event and the end of the response arrive together, as they mostly do."""
        body = wants(0, "a", "add", '{"x": 1}') + finish("tool_calls") + DONE
        await reply.stream()
        await reply.raw(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))

    assert ask(wishes, answers("ok"), tools=[add]).connections == 1


def test_tools_that_run_end_with_the_turn() -> None:
    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    async def interrupted() -> None:
        async with FakeProvider(calls(wants(0, "a", "wait", ""), wants(1, "b", "wait", ""))) as provider:
            agent = OpenAICompatible(provider.base_url, "tiny", tools=[wait])
            speaking = asyncio.create_task(output_of(agent, LooseTurn()))
            await started.wait()
            speaking.cancel()
            await asyncio.wait([speaking])
            assert ended == ["ended", "ended"]
            await agent.aclose()

    started, ended = asyncio.Event(), list[str]()
    asyncio.run(interrupted())


def no_keywords(x: int, /) -> int:
    return x


def anything(**what: int) -> int:
    return len(what)


def unspeakable(x: Callable[[], int]) -> None:
    """Its type hint is not a JSON type."""


@pytest.mark.parametrize(
    "tools",
    [
        pytest.param([add, add], id="two of one name"),
        pytest.param([tool(name="an adder")(add)], id="a name with a space"),
        pytest.param([no_keywords], id="parameters without names"),
        pytest.param([anything], id="any parameters"),
        pytest.param([unspeakable], id="a hint that is no JSON type"),
    ],
)
def test_a_tool_that_no_model_could_call_is_refused_at_once(tools: list[Any]) -> None:
    with pytest.raises(ConfigError):
        OpenAICompatible("http://127.0.0.1:9/v1", "tiny", tools=tools)
