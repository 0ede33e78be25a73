"""Directions: request parameters of a client for one turn, followed or rejected, and tools of the client."""

import asyncio
from typing import Any

import pytest

import backstay
from backstay.agents.adapters import live
from backstay.agents.directions import NONE, Directions, directions_of, takes
from backstay.agents.provider.openai_compatible import OpenAICompatible
from backstay.agents.scripted.scripted_agent import ScriptedAgent
from backstay.model import message as m
from backstay.model.content import Custom, Text, ToolCall, ToolResult
from backstay.model.turn import Completed
from tests.agents.fake_turn import LooseTurn, output_of, text_in
from tests.agents.provider.fake_provider import answers, calls, wants
from tests.agents.provider.provider_turn import ask

WEATHER = {"name": "weather", "description": "How it is.", "parameters": {"type": "object", "properties": {}}}


def asked(words: str = "hello", /, **directions: Any) -> tuple[Text, Custom]:
    return Text(words), Custom("request", directions)


def test_an_input_without_directions_asks_for_nothing() -> None:
    assert directions_of([Text("hello")]) is NONE
    assert NONE.given == frozenset()


@pytest.mark.parametrize("data", [None, 7, [], {"tools": 7}, {"instructions": ["x"]}, {"temperature": "warm"}])
def test_a_foreign_part_named_request_has_no_directions(data: Any) -> None:
    assert directions_of([Custom("request", data)]) is NONE


def test_directions_name_the_given_fields() -> None:
    directions = directions_of(asked(instructions="be kind", tools=[WEATHER], temperature=0.0, unknown=1))

    assert directions.given == {"instructions", "tools", "temperature"}


def test_an_agent_follows_only_the_directions_that_it_declares() -> None:
    assert takes(OpenAICompatible("http://localhost/v1", "m")) == frozenset(Directions.__struct_fields__)
    assert "tools" in takes(ScriptedAgent())
    assert "tools" in takes(ScriptedAgent)
    assert "tools" in takes(live(ScriptedAgent))

    async def silent(turn: Any) -> Any:
        yield Text("hm")

    assert takes(silent) == frozenset()


def test_the_directions_of_a_client_are_sent_to_the_model() -> None:
    turn = LooseTurn(
        asked(
            instructions="Be kind.",
            temperature=0.5,
            top_p=0.9,
            max_output_tokens=7,
            parallel_tool_calls=False,
            tools=[WEATHER],
            tool_choice={"type": "function", "name": "weather"},
            reasoning={"effort": "low"},
            text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
        )
    )
    request = ask(answers("hi"), turn=turn, system="You are a guide.").requests[0].body

    assert request["messages"][0] == {"role": "system", "content": "You are a guide.\n\nBe kind."}
    assert request["messages"][1]["content"] == "hello"
    assert request["tools"] == [{"type": "function", "function": WEATHER}]
    wanted = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 7, "parallel_tool_calls": False}
    assert request == request | wanted | {
        "reasoning_effort": "low",
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
    }


def test_a_call_of_a_clients_tool_ends_the_turn_and_is_not_run() -> None:
    turn = LooseTurn(asked(tools=[WEATHER]))
    result = ask(calls(wants(0, "c1", "weather", '{"city": "Rome"}')), turn=turn)

    assert [body for body in result.bodies if isinstance(body, ToolCall)] == [
        ToolCall("c1", "weather", {"city": "Rome"}, client=True)
    ]
    assert turn.calls == []
    assert len(result.requests) == 1


def test_client_calls_are_left_to_the_client_and_ours_run_here() -> None:
    def look(at: str) -> str:
        return f"saw {at}"

    turn = LooseTurn(asked(tools=[WEATHER]))
    both = calls(wants(0, "c1", "look", '{"at": "tea"}'), wants(1, "c2", "weather", "not json"))
    result = ask(both, turn=turn, tools=[look])

    assert turn.calls == [("look", {"at": "tea"})]
    assert result.bodies[-1] == ToolCall("c2", "weather", "not json", client=True)
    assert len(result.requests) == 1


def test_a_clients_result_is_shown_to_the_model_in_the_next_turn() -> None:
    history = [
        m.user("how is it?"),
        m.assistant(ToolCall("c1", "weather", {"city": "Rome"}, client=True)),
        m.tool(ToolResult("c1", "sunny")),
    ]
    turn = LooseTurn(Custom("request", {"tools": [WEATHER]}), history=history)
    sent = ask(answers("nice"), turn=turn).sent[0]

    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert sent[2]["content"] == "sunny"


def test_a_client_may_not_declare_a_tool_that_the_agent_has() -> None:
    def weather() -> str:
        return "sunny"

    result = ask(turn=LooseTurn(asked(tools=[WEATHER])), tools=[weather])
    assert "weather" in str(result.error)
    assert result.requests == []


def test_the_scripted_agent_leaves_a_declared_tool_to_the_client_and_stops_there() -> None:
    turn = LooseTurn(asked('hello\ntool weather {"city":"Rome"}\ntool weather\ngoodbye', tools=[WEATHER]))
    bodies = asyncio.run(output_of(ScriptedAgent(), turn))

    wishes = [body for body in bodies if isinstance(body, ToolCall)]
    assert [(wish.name, wish.arguments, wish.client) for wish in wishes] == [
        ("weather", {"city": "Rome"}, True),
        ("weather", {}, True),
    ]
    assert len({wish.id for wish in wishes}) == 2
    assert "goodbye" not in text_in(bodies)


def test_the_result_of_a_client_call_continues_the_conversation(tmp_path: Any) -> None:
    async def talk() -> str:
        async with backstay.open(tmp_path / "chat.db", agent=ScriptedAgent()) as app:
            session = await app.session()
            turn = await session.send(asked("tool weather", tools=[WEATHER]))
            assert isinstance(await turn.outcome(), Completed)
            (call,) = [part for part in (await session.messages())[-1].parts if isinstance(part, ToolCall)]
            await session.record([m.tool(ToolResult(call.id, "sunny"))])
            await (await session.send(Custom("request", {}))).outcome()
            return (await session.messages())[-1].text

    assert asyncio.run(talk()) == "You gave me: sunny\n"
