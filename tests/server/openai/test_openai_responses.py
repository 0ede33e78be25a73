"""Responses through the official client: created, streamed, cut and resumed, followed, forked, cancelled, deleted."""

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any

import openai
import pytest
from openai.types.responses import Response, ResponseFunctionToolCall

import backstay
from backstay.errors import NotFound
from backstay.model import message
from backstay.model.content import ToolResult
from backstay.model.ids import SessionId
from backstay.server.openai.encoding.turn_events import events_of
from backstay.store import commands, open_store
from tests.databases import Place
from tests.runtime.controlled_agents import echo, play
from tests.server.agents import AGENTS
from tests.server.openai.openai_client import Ai, client_of, fault, plain
from tests.server.running_server import RunningServer, run_server

# These tests are about code above the store, or about rules of its contract: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")


@pytest.fixture
def server(shared_server: RunningServer) -> RunningServer:
    return shared_server.for_somebody_new()


WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "weather",
    "description": "How the weather is.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": True,
}


@pytest.fixture
def ai(server: RunningServer) -> Iterator[Ai]:
    with client_of(server) as client:
        yield client


def items(ai: Ai, conversation: str) -> list[dict[str, Any]]:
    return [item.to_dict() for item in ai.conversations.items.list(conversation, order="asc")]


def test_a_background_stream_dropped_at_any_number_is_resumed_by_any_server(place: Place, notify: bool) -> None:
    with run_server(place, AGENTS, notify=notify) as one, run_server(place, AGENTS, notify=notify) as other:
        token = one.token()
        with client_of(one, token) as here, client_of(other, token) as there:
            conversation = here.conversations.create().id
            stream = here.responses.create(
                model="scripted",
                input="think about tea\ncalc 6*7\nhello",
                conversation=conversation,
                background=True,
                stream=True,
            )
            with stream:
                heard = [next(stream)]
            response = heard[0].response.id
            while heard[-1].type != "response.completed":
                ai = (here, there)[len(heard) % 2]
                with ai.responses.retrieve(response, stream=True, starting_after=heard[-1].sequence_number) as resumed:
                    heard.append(next(resumed))

            assert [event.sequence_number for event in heard] == list(range(len(heard)))
            assert plain(heard) == plain(list(there.responses.retrieve(response, stream=True)))
            final = here.responses.retrieve(response)
            assert plain(heard)[-1]["response"] == final.to_dict()
            assert final.status == "completed"
            assert [item["type"] for item in items(there, conversation)] == [
                "message",
                *(item.type for item in final.output),
            ]
            assert items(there, conversation)[1:] == [item.to_dict() for item in final.output]


def test_events_have_the_order_that_clients_expect(ai: Ai) -> None:
    stream = ai.responses.create(model="default", input="one two", stream=True)

    # The checkpoints decide how many words arrive at once.
    assert [kind for kind, _ in groupby(event.type for event in stream)] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]


def test_the_clients_own_helper_puts_the_answer_together(ai: Ai) -> None:
    with ai.responses.stream(model="default", input="one two three") as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()

    assert final.output_text == "one two three "
    with ai.responses.stream(response_id=final.id, starting_after=4) as again:
        assert next(event.sequence_number for event in again if hasattr(event, "sequence_number")) == 5


def test_a_response_without_a_stream_is_answered_when_it_has_ended(ai: Ai) -> None:
    response = ai.responses.create(
        model="default", input="hello there", metadata={"order": "7"}, user="u", prompt_cache_key="k", truncation="auto"
    )

    assert (response.status, response.output_text) == ("completed", "hello there ")
    assert response.metadata == {"order": "7"}
    assert (response.user, response.prompt_cache_key, response.truncation) == ("u", "k", "auto")
    assert response.conversation is None
    assert response.background is False
    assert ai.responses.retrieve(response.id) == response


def test_a_background_response_returns_at_once_and_continues(ai: Ai) -> None:
    response = ai.responses.create(model="patient", input="wait", background=True)
    assert response.status in ("queued", "in_progress")

    ended = ai.responses.cancel(response.id)

    assert ended.status == "cancelled"
    assert ended.background is True
    assert ai.responses.retrieve(response.id).status == "cancelled"
    last = list(ai.responses.retrieve(response.id, stream=True))[-1]
    assert last.type == "response.incomplete"
    assert last.response.status == "cancelled"
    assert ai.responses.cancel(response.id).status == "cancelled"


def test_a_response_to_a_busy_conversation_waits_its_turn(ai: Ai) -> None:
    conversation = ai.conversations.create().id
    first = ai.responses.create(model="patient", input="wait", conversation=conversation, background=True)
    second = ai.responses.create(model="default", input="later", conversation={"id": conversation}, background=True)
    assert second.status == "queued"
    assert ai.responses.input_items.list(second.id).data == []

    ai.responses.cancel(first.id)

    kinds = [event.type for event in ai.responses.retrieve(second.id, stream=True)]
    assert kinds[:3] == ["response.created", "response.queued", "response.in_progress"]
    assert ai.responses.retrieve(second.id).output_text == "later "


def test_an_agent_that_fails_makes_a_failed_response(ai: Ai) -> None:
    response = ai.responses.create(model="scripted", input="fail no luck today")

    assert response.status == "failed"
    assert response.error is not None
    assert "no luck today" in response.error.message
    assert response.output_text == "I am about to fail.\n"
    assert [event.type for event in ai.responses.retrieve(response.id, stream=True)][-1] == "response.failed"


def test_an_answer_that_was_cut_is_incomplete(ai: Ai) -> None:
    response = ai.responses.create(model="cut", input="speak")

    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


def test_a_previous_response_id_of_the_newest_continues_its_session(ai: Ai) -> None:
    raw = ai.responses.with_raw_response
    first = raw.create(model="scripted", input="hello")
    second = raw.create(model="scripted", input="usage", previous_response_id=first.parse().id)

    assert second.parse().previous_response_id == first.parse().id
    assert first.headers["x-session-id"] == second.headers["x-session-id"]
    assert len(items(ai, first.headers["x-session-id"].replace("ses_", "conv_"))) == 4


def test_a_previous_response_id_of_an_earlier_one_forks_before_later_messages(ai: Ai) -> None:
    raw = ai.responses.with_raw_response
    first = raw.create(model="default", input="one")
    raw.create(model="default", input="two", previous_response_id=first.parse().id)

    third = raw.create(model="default", input="three", previous_response_id=first.parse().id)

    assert third.headers["x-session-id"] != first.headers["x-session-id"]
    read = items(ai, third.headers["x-session-id"].replace("ses_", "conv_"))
    assert [item["content"][0]["text"] for item in read] == ["one", "one ", "three", "three "]


def test_two_concurrent_continuations_of_one_response_are_separate(ai: Ai) -> None:
    first = ai.responses.create(model="default", input="one")
    slow = ai.responses.create(model="patient", input="two", previous_response_id=first.id, background=True)

    other = ai.responses.with_raw_response.create(model="default", input="three", previous_response_id=first.id)

    read = items(ai, other.headers["x-session-id"].replace("ses_", "conv_"))
    assert [item["content"][0]["text"] for item in read] == ["one", "one ", "three", "three "]
    with pytest.raises(openai.ConflictError) as refused:
        ai.responses.create(model="default", input="four", previous_response_id=slow.id)
    assert "has not ended" in fault(refused.value)["message"]
    ai.responses.cancel(slow.id)


def called(response: Response) -> ResponseFunctionToolCall:
    (call,) = response.output
    assert isinstance(call, ResponseFunctionToolCall)
    return call


def test_a_client_tool_runs_at_the_client_and_its_result_continues_the_session(ai: Ai) -> None:
    asked = ai.responses.create(
        model="scripted", input='tool weather {"city":"Rome"}', tools=[WEATHER], instructions="Be brief."
    )
    call = called(asked)
    assert (call.name, call.arguments, call.status) == ("weather", '{"city":"Rome"}', "completed")
    assert asked.status == "completed"
    assert asked.instructions == "Be brief."
    assert asked.tools[0].to_dict() == WEATHER

    kinds = [event.type for event in ai.responses.retrieve(asked.id, stream=True)]
    assert "response.function_call_arguments.done" in kinds
    assert not [kind for kind in kinds if "mcp" in kind]

    answer = ai.responses.create(
        model="scripted",
        previous_response_id=asked.id,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}],
    )
    assert answer.output_text == "You gave me: sunny\n"
    (given,) = ai.responses.input_items.list(answer.id).data
    assert given.to_dict()["output"] == "sunny"


def test_a_tool_of_the_server_is_shown_as_an_mcp_call(ai: Ai) -> None:
    response = ai.responses.create(model="scripted", input="calc 6*7\ntool calculator {}", tools=[WEATHER])

    calls = [item.to_dict() for item in response.output if item.type == "mcp_call"]
    assert [(call["name"], call["status"], call["output"]) for call in calls] == [
        ("calculator", "completed", "42"),
        ("calculator", "failed", None),
    ]
    assert calls[1]["error"]["type"] == "mcp_tool_execution_error"
    assert not [item for item in response.output if item.type == "function_call"]


def test_a_result_for_an_unknown_call_is_rejected_and_adds_nothing(ai: Ai) -> None:
    conversation = ai.conversations.create().id
    with pytest.raises(openai.BadRequestError):
        ai.responses.create(
            model="scripted",
            conversation=conversation,
            input=[{"type": "function_call_output", "call_id": "call_x", "output": "sunny"}],
        )
    assert items(ai, conversation) == []


def test_a_request_with_an_invalid_tool_or_key_adds_nothing(ai: Ai) -> None:
    conversation = ai.conversations.create().id
    deep: dict[str, Any] = {}
    for _ in range(70):
        deep = {"properties": deep}
    said = [{"role": "assistant", "content": "before"}, {"role": "user", "content": "hello"}]
    for more in (
        {"tools": [WEATHER | {"parameters": deep}]},
        {"extra_headers": {"Idempotency-Key": ""}},
        {"extra_headers": {"Idempotency-Key": "k" * 300}},
    ):
        with pytest.raises(openai.APIStatusError) as refused:
            ai.responses.create(model="scripted", conversation=conversation, input=said, **more)
        assert refused.value.status_code in (400, 413)
    assert items(ai, conversation) == []


@pytest.mark.parametrize("key", [None, "k"])
def test_a_session_that_was_made_for_a_request_that_is_refused_goes_again(
    server: RunningServer, ai: Ai, key: str | None
) -> None:
    lost = {"type": "function_call_output", "call_id": "call_x", "output": "sunny"}
    headers = {} if key is None else {"Idempotency-Key": key}
    first = ai.responses.create(model="default", input="one")
    ai.responses.create(model="default", input="two", previous_response_id=first.id)
    for more in ({}, {"previous_response_id": first.id}):
        with pytest.raises(openai.BadRequestError):
            ai.responses.create(model="default", input=[lost], extra_headers=headers, **more)

    with server.client() as client:
        assert len(client.get("/api/sessions").json()["sessions"]) == 1


def test_a_request_cut_off_after_recording_its_items_is_completed_by_its_repetition(
    server: RunningServer, ai: Ai
) -> None:
    asked = ai.responses.create(model="scripted", input='tool weather {"city":"Rome"}', tools=[WEATHER])
    session = SessionId(session_of(ai, asked.id))
    result = {"type": "function_call_output", "call_id": called(asked).call_id, "output": "sunny"}
    with open_store(server.place) as store:
        said = [message.tool(ToolResult(called(asked).call_id, "sunny"))]
        store.record(session, said, owner=server.owner, request_id=f"items {hashlib.sha256(b'k').hexdigest()}")

    answer = ai.responses.create(
        model="scripted", previous_response_id=asked.id, input=[result], extra_headers={"Idempotency-Key": "k"}
    )

    assert answer.output_text == "You gave me: sunny\n"
    assert session_of(ai, answer.id) == session


def session_of(ai: Ai, response: str) -> str:
    return str(ai.responses.with_raw_response.retrieve(response).headers["x-session-id"])


def test_a_whole_history_can_be_sent_as_input(ai: Ai) -> None:
    response = ai.responses.create(
        model="scripted",
        input=[
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": [{"type": "input_text", "text": "one"}]},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": "usage"},
        ],
    )

    assert response.output_text.startswith("5 words read")
    given = ai.responses.input_items.list(response.id, order="asc").data
    assert [(item.role, item.content[0].text) for item in given] == [
        ("developer", "Be kind."),
        ("user", "one"),
        ("assistant", "two"),
        ("user", "usage"),
    ]
    page = ai.responses.input_items.list(response.id, limit=1)
    assert page.has_more
    assert [item.to_dict() for item in page] == [item.to_dict() for item in reversed(given)]


def test_a_deleted_response_is_not_found_and_its_messages_stay(ai: Ai) -> None:
    conversation = ai.conversations.create().id
    response = ai.responses.create(model="default", input="hello", conversation=conversation)

    ai.responses.delete(response.id)

    asks: list[Callable[[], object]] = [
        lambda: ai.responses.retrieve(response.id),
        lambda: ai.responses.retrieve(response.id, stream=True),
        lambda: ai.responses.cancel(response.id),
        lambda: ai.responses.delete(response.id),
        lambda: ai.responses.input_items.list(response.id),
    ]
    for ask in asks:
        with pytest.raises(openai.NotFoundError):
            ask()
    with pytest.raises(openai.BadRequestError):
        ai.responses.create(model="default", input="x", previous_response_id=response.id)
    assert len(items(ai, conversation)) == 2


def test_a_response_that_runs_is_not_deleted(ai: Ai) -> None:
    response = ai.responses.create(model="patient", input="wait", background=True)
    with pytest.raises(openai.ConflictError):
        ai.responses.delete(response.id)
    assert ai.responses.cancel(response.id).status == "cancelled"


def test_a_response_with_store_false_is_deleted_after_its_answer(server: RunningServer, ai: Ai) -> None:
    whole = ai.responses.with_raw_response.create(model="default", input="secret", store=False)
    streamed = ai.responses.create(model="default", input="secret", store=False, stream=True)
    pieces = list(streamed)
    assert whole.parse().output_text == "secret "
    assert pieces[-1].response.output_text == "secret "

    for name in (whole.parse().id, pieces[0].response.id):
        with pytest.raises(openai.NotFoundError):
            ai.responses.retrieve(name)
    with server.client() as client:
        until_gone(client, whole.headers["x-session-id"])
        until_gone(client, streamed.response.headers["x-session-id"])


def test_a_fork_for_a_response_with_store_false_expires_if_nobody_deletes_it(server: RunningServer, ai: Ai) -> None:
    first = ai.responses.create(model="default", input="one")
    stream = ai.responses.create(model="patient", input="two", previous_response_id=first.id, store=False, stream=True)
    with stream, server.client() as client:
        session = stream.response.headers["x-session-id"]
        assert client.get(f"/api/sessions/{session}").json()["expires_at"] is not None
        turn = next(stream).response.id.replace("resp_", "trn_")
        assert client.post(f"/api/turns/{turn}/cancel").status_code == 200


def until_gone(client: Any, session: str) -> None:
    """Follow a session to its last event."""
    with client.stream("GET", "/api/events", params={"sessions": session}) as stream:
        if stream.status_code == 404:
            return
        assert any("session_deleted" in line for line in stream.iter_lines())
    assert client.get(f"/api/sessions/{session}").status_code == 404


def test_a_repeated_key_is_the_same_response_in_any_session(ai: Ai) -> None:
    first = ai.responses.create(model="default", input="one", extra_headers={"Idempotency-Key": "a"})
    again = ai.responses.create(model="default", input="one", extra_headers={"Idempotency-Key": "a"})
    assert again == first

    next_one = {"model": "default", "input": "two", "previous_response_id": first.id}
    followed = [ai.responses.create(**next_one, extra_headers={"Idempotency-Key": "b"}) for _ in range(2)]
    assert followed[0] == followed[1]
    forked = [ai.responses.create(**next_one, extra_headers={"Idempotency-Key": "c"}) for _ in range(2)]
    assert forked[0] == forked[1] != followed[0]

    conversation = ai.conversations.create().id
    before = [{"role": "user", "content": "so"}, {"role": "assistant", "content": "what"}]
    said = {"model": "default", "conversation": conversation, "input": [*before, {"role": "user", "content": "go"}]}
    kept = [ai.responses.create(**said, extra_headers={"Idempotency-Key": "d"}) for _ in range(2)]
    assert kept[0] == kept[1]
    assert len(items(ai, conversation)) == 4

    with pytest.raises(openai.UnprocessableEntityError):
        ai.responses.create(model="default", input="other", extra_headers={"Idempotency-Key": "a"})


def test_a_key_that_was_used_for_another_request_is_refused_and_nothing_is_recorded(ai: Ai) -> None:
    ai.responses.create(model="default", input="one", extra_headers={"Idempotency-Key": "a"})
    conversation = ai.conversations.create().id
    before = [{"role": "user", "content": "so"}, {"role": "assistant", "content": "what"}]

    for asked in ("one", [*before, {"role": "user", "content": "one"}]):
        with pytest.raises(openai.UnprocessableEntityError):
            ai.responses.create(
                model="default", conversation=conversation, input=asked, extra_headers={"Idempotency-Key": "a"}
            )

    assert items(ai, conversation) == []


def test_a_key_that_comes_often_at_once_is_one_response_in_one_fork(server: RunningServer, ai: Ai) -> None:
    first = ai.responses.create(model="default", input="one")
    ai.responses.create(model="default", input="two", previous_response_id=first.id)
    again: dict[str, Any] = {"model": "default", "input": "other", "previous_response_id": first.id}

    with ThreadPoolExecutor(8) as several:
        sent = [several.submit(ai.responses.create, **again, extra_headers={"Idempotency-Key": "k"}) for _ in range(8)]
        assert len({one.result().id for one in sent}) == 1

    with server.client() as client:
        assert len(client.get("/api/sessions").json()["sessions"]) == 2


def test_a_stream_that_was_folded_has_expired_and_the_response_has_not(server: RunningServer, ai: Ai) -> None:
    response = ai.responses.create(model="scripted", input="think of tea\ncalc 1+1")
    with open_store(server.place) as store:
        store.fold(older_than=-1)

    assert ai.responses.retrieve(response.id) == response
    with pytest.raises(openai.BadRequestError) as refused:
        ai.responses.retrieve(response.id, stream=True, starting_after=3)
    assert fault(refused.value)["code"] == "stream_expired"
    streamed = list(ai.responses.retrieve(response.id, stream=True))
    assert [event.sequence_number for event in streamed] == list(range(len(streamed)))
    assert streamed[-1].response == response


def test_a_head_request_for_a_stream_does_not_wait_for_its_end(server: RunningServer, ai: Ai) -> None:
    response = ai.responses.create(model="patient", input="wait", background=True).id
    with server.client() as client:
        for _ in range(2):  # on one connection
            assert client.head(f"/v1/responses/{response}", params={"stream": "true"}).status_code == 200
    assert ai.responses.cancel(response).status == "cancelled"


def test_a_sequence_number_that_was_never_sent_is_rejected(ai: Ai) -> None:
    response = ai.responses.create(model="default", input="hello")
    last = list(ai.responses.retrieve(response.id, stream=True))[-1].sequence_number

    assert list(ai.responses.retrieve(response.id, stream=True, starting_after=last)) == []
    with pytest.raises(openai.BadRequestError) as refused:
        ai.responses.retrieve(response.id, stream=True, starting_after=last + 1)
    assert fault(refused.value)["param"] == "starting_after"
    with pytest.raises(openai.BadRequestError):
        ai.responses.retrieve(response.id, extra_query={"starting_after": 1})


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"temperature": 0.1}, "temperature"),
        ({"instructions": "be kind"}, "instructions"),
        ({"tools": [WEATHER]}, "tools"),
        ({"max_tool_calls": 3}, "max_tool_calls"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"text": {"format": {"type": "json_object"}}}, "text"),
        ({"reasoning": {"effort": "low"}}, "reasoning"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"background": True, "store": False}, "background"),
        ({"conversation": "conv_x", "previous_response_id": "resp_x"}, "conversation"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"role": "boss", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
        ({"input": [{"type": "item_reference", "id": "msg_x"}]}, "input[0].id"),
        ({"input": [{"type": "item_reference", "id": "msg_01m7j9vf4jf4msapk2gvh096me"}]}, "input[0].id"),
        ({"input": [{"type": "web_search_call", "id": "ws_1", "status": "completed"}]}, "input[0]"),
        ({"input": [{"nothing": 1}]}, "input[0]"),
        ({"metadata": {"a": "x" * 513}}, "metadata"),
        ({"metadata": {str(number): "" for number in range(17)}}, "metadata"),
        ({"extra_body": {"sparkle": True}}, "sparkle"),
        ({"extra_body": {"stream": "maybe"}}, "stream"),
    ],
)
def test_ignored_or_invalid_parameters_are_rejected_and_start_nothing(
    server: RunningServer, ai: Ai, asked: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ai.responses.create(**({"model": "default", "input": "hello"} | asked))

    problem = fault(refused.value)
    assert problem["param"] == param
    assert problem["type"] == "invalid_request_error"
    with server.client() as client:
        assert client.get("/api/sessions").json()["sessions"] == []


def test_default_values_of_parameters_are_accepted(ai: Ai) -> None:
    response = ai.responses.create(
        model="default",
        input="hello",
        instructions=None,
        tools=[],
        tool_choice="auto",
        parallel_tool_calls=True,
        text={"format": {"type": "text"}},
        reasoning={"effort": None},
        service_tier="auto",
        include=["reasoning.encrypted_content"],
        truncation="disabled",
        top_logprobs=0,
        temperature=1,
        top_p=1.0,
        safety_identifier="somebody",
    )
    assert response.output_text == "hello "


def test_unsupported_operations_are_answered_as_such(ai: Ai) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        ai.responses.input_tokens.count(model="default", input="hello")
    assert fault(refused.value)["code"] == "not_offered"
    with pytest.raises(openai.NotFoundError):
        ai.embeddings.create(model="default", input="hello")


def test_a_response_whose_session_goes_while_it_is_looked_up_is_not_found(path: Place) -> None:
    async def scenario() -> None:
        async with backstay.open(path, agent=echo) as app:
            owned = app.owned_by("anna")
            session = await owned.run(commands.create(owner=owned.owner))
            turn = await owned.handle(session.id).send("hello")
            await turn.outcome()
            looked_up = await turn.read()
            await owned.run(commands.delete(session.id, owner=owned.owner))
            with pytest.raises(NotFound):
                await events_of(owned, looked_up)

    play(scenario())
