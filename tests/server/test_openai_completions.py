"""Chat Completions through the official client, with and without a session that lasts."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.databases import Place
from tests.server.agents import AGENTS
from tests.server.openai_client import Ai, client_of, fault
from tests.server.running_server import RunningServer, run_server

# What is checked here happens in front of the store, or is a fact of its contract: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")


@pytest.fixture
def server(shared_server: RunningServer) -> RunningServer:
    return shared_server.for_somebody_new()


WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


@pytest.fixture
def ai(server: RunningServer) -> Iterator[Ai]:
    with client_of(server) as client:
        yield client


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def texts(server: RunningServer, session: str) -> list[str]:
    with server.client() as client:
        messages = client.get(f"/api/sessions/{session}/messages").json()["messages"]
    return ["".join(part.get("text", "") for part in message["parts"]) for message in messages]


def test_a_completion_is_a_turn_in_a_new_session_and_the_header_names_it(place: Place) -> None:
    with run_server(place, AGENTS) as server, client_of(server) as ai:
        raw = ai.chat.completions.with_raw_response
        first = raw.create(model="default", messages=[user("hello there")])

        completion = first.parse()
        assert completion.id.startswith("chatcmpl-")
        assert completion.object == "chat.completion"
        assert completion.model == "default"
        assert completion.choices[0].message.content == "hello there "
        assert completion.choices[0].finish_reason == "stop"

        session = first.headers["x-session-id"]
        again = raw.create(
            model="default",
            messages=[user("hello there"), {"role": "assistant", "content": "edited by the client"}, user("and on")],
            extra_headers={"X-Session-Id": session},
        )
        assert again.headers["x-session-id"] == session
        assert texts(server, session) == ["hello there", "hello there ", "and on", "and on "]
        other = raw.create(model="default", messages=[user("hello there")])
        assert other.headers["x-session-id"] != session


def test_a_conversation_can_be_named_as_a_session(server: RunningServer, ai: Ai) -> None:
    conversation = ai.conversations.create().id
    ai.chat.completions.create(model="default", messages=[user("hello")], extra_headers={"X-Session-Id": conversation})
    assert texts(server, conversation.replace("conv_", "ses_")) == ["hello", "hello "]


def test_without_a_session_the_whole_history_is_read(server: RunningServer, ai: Ai) -> None:
    answer = ai.chat.completions.with_raw_response.create(
        model="scripted",
        messages=[
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
            {"role": "assistant", "content": None, "tool_calls": [call("c1", "{}"), call("c2", '{"a":1}')]},
            {"role": "tool", "tool_call_id": "c1", "content": "green"},
            {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "tea"}]},
        ],
    )
    said = answer.parse().choices[0].message.content
    assert said is not None
    assert "green" in said
    assert texts(server, answer.headers["x-session-id"])[:2] == ["Be kind.", "onetwo"]


def call(name: str, arguments: str) -> Any:
    return {"id": name, "type": "function", "function": {"name": "look", "arguments": arguments}}


def test_a_stream_tells_the_answer_piece_by_piece(ai: Ai) -> None:
    stream = ai.chat.completions.create(
        model="scripted",
        messages=[user("think first\ncalc 1+1\nhello")],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)

    assert chunks[0].choices[0].delta.role == "assistant"
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert "calculator: 2" in said
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens > 0
    assert len({chunk.id for chunk in chunks}) == 1
    assert stream.response.headers["x-session-id"].startswith("ses_")


@pytest.mark.parametrize("stream", [True, False])
def test_a_clients_tool_is_handed_over(ai: Ai, stream: bool) -> None:
    asked = {"model": "scripted", "messages": [user('tool weather {"city":"Rome"}')], "tools": [WEATHER]}
    if stream:
        chunks = list(ai.chat.completions.create(**asked, stream=True))
        calls = [one for chunk in chunks for one in chunk.choices[0].delta.tool_calls or []]
        reason = chunks[-1].choices[0].finish_reason
    else:
        choice = ai.chat.completions.create(**asked).choices[0]
        calls, reason = choice.message.tool_calls or [], choice.finish_reason

    assert reason == "tool_calls"
    (wish,) = calls
    assert (wish.function.name, wish.function.arguments) == ("weather", '{"city":"Rome"}')


def test_a_clients_tool_result_goes_on_in_a_session_that_lasts(ai: Ai) -> None:
    raw = ai.chat.completions.with_raw_response
    first = raw.create(model="scripted", messages=[user('tool weather {"city":"Rome"}')], tools=[WEATHER])
    message = first.parse().choices[0].message
    (wish,) = message.tool_calls or []

    second = raw.create(
        model="scripted",
        messages=[
            user('tool weather {"city":"Rome"}'),
            message.to_dict(),
            {"role": "tool", "tool_call_id": wish.id, "content": "sunny"},
        ],
        tools=[WEATHER],
        extra_headers={"X-Session-Id": first.headers["x-session-id"]},
    )
    assert second.parse().choices[0].message.content == "You gave me: sunny\n"


def test_a_system_message_is_for_this_turn_if_the_session_has_its_own_history(server: RunningServer, ai: Ai) -> None:
    conversation = ai.conversations.create().id
    messages = [{"role": "system", "content": "Be very kind."}, user("usage")]
    answer = ai.chat.completions.create(
        model="scripted",
        messages=messages,
        extra_headers={"X-Session-Id": conversation},
    )
    assert (answer.choices[0].message.content or "").startswith("4 words read")
    with pytest.raises(openai.BadRequestError) as refused:
        ai.chat.completions.create(
            model="default",
            messages=messages,
            extra_headers={"X-Session-Id": conversation},
        )
    assert fault(refused.value)["param"] == "instructions"


def test_a_failure_is_not_asked_for_again_by_the_client_itself(server: RunningServer, ai: Ai) -> None:
    conversation = ai.conversations.create().id
    with pytest.raises(openai.InternalServerError):
        ai.with_options(max_retries=2).chat.completions.create(
            model="scripted", messages=[user("fail no luck")], extra_headers={"X-Session-Id": conversation}
        )

    assert texts(server, conversation.replace("conv_", "ses_")).count("fail no luck") == 1


def test_a_failure_is_raised_whole_or_in_the_middle_of_a_stream(ai: Ai) -> None:
    with pytest.raises(openai.InternalServerError) as refused:
        ai.chat.completions.create(model="scripted", messages=[user("fail no luck")])
    assert "no luck" in fault(refused.value)["message"]
    with pytest.raises(openai.APIError, match="no luck"):
        list(ai.chat.completions.create(model="scripted", messages=[user("fail no luck")], stream=True))


def test_an_answer_that_was_cut_says_so(ai: Ai) -> None:
    assert ai.chat.completions.create(model="cut", messages=[user("x")]).choices[0].finish_reason == "length"


def test_a_repeated_key_is_the_same_completion(ai: Ai) -> None:
    made = [
        ai.chat.completions.create(model="default", messages=[user("hello")], extra_headers={"Idempotency-Key": "k"})
        for _ in range(2)
    ]
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"n": 2}, "n"),
        ({"stop": ["x"]}, "stop"),
        ({"seed": 7}, "seed"),
        ({"logprobs": True}, "logprobs"),
        ({"presence_penalty": 1.0}, "presence_penalty"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"temperature": 0.0}, "temperature"),
        ({"max_tokens": 5}, "max_output_tokens"),
        ({"response_format": {"type": "json_object"}}, "text"),
        ({"tools": [WEATHER]}, "tools"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0]",
        ),
        ({"extra_body": {"sparkle": 1}}, "sparkle"),
    ],
)
def test_what_would_be_ignored_is_refused(server: RunningServer, ai: Ai, asked: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ai.chat.completions.create(**({"model": "default", "messages": [user("hello")]} | asked))
    assert fault(refused.value)["param"] == param
    with server.client() as client:
        assert client.get("/api/sessions").json()["sessions"] == []


def test_nothing_new_for_a_session_that_lasts_is_refused(ai: Ai) -> None:
    conversation = ai.conversations.create().id
    with pytest.raises(openai.BadRequestError) as refused:
        ai.chat.completions.create(
            model="default",
            messages=[user("hello"), {"role": "assistant", "content": "hi"}],
            extra_headers={"X-Session-Id": conversation},
        )
    assert fault(refused.value)["param"] == "messages"
