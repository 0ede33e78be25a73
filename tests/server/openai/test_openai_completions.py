"""Chat Completions through the official client, with and without a session that lasts."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest

from backstay.agents import AgentTurn, directions_of
from backstay.model.content import Body, Text
from tests.databases import Place
from tests.server.agents import AGENTS
from tests.server.api_calls import until
from tests.server.openai.openai_client import Ai, client_of, fault
from tests.server.running_server import RunningServer, run_server

# These tests are about code above the store, or about rules of its contract: the engine cannot matter.
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


def test_without_a_session_the_whole_history_of_the_request_is_read(server: RunningServer, ai: Ai) -> None:
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


def test_a_stream_sends_the_answer_in_pieces(ai: Ai) -> None:
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


def test_a_client_tool_result_continues_a_lasting_session(ai: Ai) -> None:
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


def test_a_failed_request_is_not_retried_by_the_client(server: RunningServer, ai: Ai) -> None:
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


def test_a_truncated_answer_has_the_finish_reason_length(ai: Ai) -> None:
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
            "messages[0].content[0].image_url.url",
        ),
        ({"extra_body": {"sparkle": 1}}, "sparkle"),
    ],
)
def test_parameters_that_would_be_ignored_are_rejected(
    server: RunningServer, ai: Ai, asked: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ai.chat.completions.create(**({"model": "default", "messages": [user("hello")]} | asked))
    assert fault(refused.value)["param"] == param
    with server.client() as client:
        assert client.get("/api/sessions").json()["sessions"] == []


class Obedient:
    """Supports some parameters, and answers with those that it got."""

    takes = frozenset(("stop", "seed", "presence_penalty", "frequency_penalty"))

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        given = directions_of(turn.input.parts)
        yield Text(repr([given.stop, given.seed, given.presence_penalty, given.frequency_penalty]))

    async def aclose(self) -> None:
        """Has nothing to close."""


@pytest.mark.parametrize(("stop", "taken"), [("x", ("x",)), (["x", "y"], ("x", "y")), (None, ())])
def test_stop_seed_and_penalties_reach_an_agent_that_takes_them(
    place: Place, stop: Any, taken: tuple[str, ...]
) -> None:
    with run_server(place, {"default": Obedient()}) as server, client_of(server) as ai:
        completion = ai.chat.completions.create(
            model="default",
            messages=[user("hello")],
            stop=stop,
            seed=0,
            presence_penalty=0.5,
            frequency_penalty=-0.5,
        )
        assert completion.choices[0].message.content == repr([taken, 0, 0.5, -0.5])


def test_nothing_new_for_a_session_that_lasts_is_refused(ai: Ai) -> None:
    conversation = ai.conversations.create().id
    with pytest.raises(openai.BadRequestError) as refused:
        ai.chat.completions.create(
            model="default",
            messages=[user("hello"), {"role": "assistant", "content": "hi"}],
            extra_headers={"X-Session-Id": conversation},
        )
    assert fault(refused.value)["param"] == "messages"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["default", "scripted"])
def test_a_completion_that_is_not_to_be_stored_leaves_nothing(
    server: RunningServer, ai: Ai, stream: bool, model: str
) -> None:
    """The scripted agent fails on request."""
    for _ in range(3):
        try:
            answer = ai.chat.completions.create(
                model=model, messages=[user("fail" if model == "scripted" else "hello")], store=False, stream=stream
            )
            if stream:
                assert [*answer]
        except openai.APIError:
            assert model == "scripted"
    with server.client() as client:
        until(lambda: client.get("/api/sessions").json()["sessions"] == [], "no session is left")


def test_a_completion_in_a_named_session_is_stored_there(server: RunningServer, ai: Ai) -> None:
    first = ai.chat.completions.with_raw_response.create(model="default", messages=[user("hello")])
    session = first.headers["x-session-id"]

    ai.chat.completions.create(
        model="default", messages=[user("again")], store=False, extra_headers={"X-Session-Id": session}
    )

    assert texts(server, session) == ["hello", "hello ", "again", "again "]


def test_the_tokens_of_reasoning_are_reported(ai: Ai) -> None:
    completion = ai.chat.completions.create(model="thoughtful", messages=[user("hello")])
    response = ai.responses.create(model="thoughtful", input="hello")

    assert completion.usage.completion_tokens_details.reasoning_tokens == 5
    assert response.usage.output_tokens_details.reasoning_tokens == 5
