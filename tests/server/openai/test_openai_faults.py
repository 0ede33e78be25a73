"""Faults: for each rejection the official client raises its own exception."""

import asyncio
import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import openai
import pytest

from backstay.server.auth.authenticator import new_secret
from backstay.server.openai.operations import OPERATIONS
from tests.server.agents import AGENTS
from tests.server.api_calls import until_said
from tests.server.openai.openai_client import Ai, async_client_of, client_of, fault
from tests.server.running_server import PATIENCE, RunningServer, run_server

# These tests are about code above the store, or about rules of its contract: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")


@pytest.fixture
def server(shared_server: RunningServer) -> RunningServer:
    return shared_server.for_somebody_new()


def test_a_missing_or_wrong_token_is_not_authenticated(server: RunningServer) -> None:
    for token in ("sk-something", new_secret()):
        with client_of(server, token) as ai, pytest.raises(openai.AuthenticationError) as refused:
            ai.models.list()
        assert (fault(refused.value)["type"], fault(refused.value)["code"]) == (
            "invalid_request_error",
            "invalid_api_key",
        )


def test_another_origin_and_another_host_are_rejected(server: RunningServer) -> None:
    with client_of(server) as ai:
        with pytest.raises(openai.PermissionDeniedError) as denied:
            ai.models.list(extra_headers={"Origin": "https://evil.example"})
        assert fault(denied.value)["type"] == "permission_error"
        with pytest.raises(openai.APIStatusError) as refused:
            ai.models.list(extra_headers={"Host": "evil.example"})
        assert refused.value.status_code == 421
        assert fault(refused.value)["code"] == "host"


def test_a_client_over_the_rate_limit_gets_429(path: Path) -> None:
    with run_server(path, AGENTS, requests_per_second=0.01, request_burst=2) as server, client_of(server) as ai:
        ai.models.list()
        ai.models.list()
        with pytest.raises(openai.RateLimitError) as refused:
            ai.models.list()
        assert fault(refused.value)["type"] == "rate_limit_error"
        assert fault(refused.value)["code"] == "rate_limit_exceeded"
        assert int(refused.value.response.headers["retry-after"]) >= 1


def test_too_many_open_streams_get_429_and_start_no_turn(path: Path) -> None:
    with run_server(path, AGENTS, streams_per_token=1) as server, client_of(server) as ai:
        stream = ai.responses.create(model="patient", input="wait", stream=True)
        first = next(stream)
        for more in ({"stream": True}, {}):
            with pytest.raises(openai.RateLimitError):
                ai.responses.create(model="default", input="hello", **more)
        with pytest.raises(openai.RateLimitError):
            ai.chat.completions.create(model="default", messages=[{"role": "user", "content": "hello"}])
        with server.client() as client:
            assert len(client.get("/api/sessions").json()["sessions"]) == 1
        ai.responses.cancel(first.response.id)
        stream.close()


def test_no_more_streams_open_at_once_than_one_after_another(path: Path) -> None:
    async def statuses(server: RunningServer) -> list[int]:
        async with async_client_of(server) as ai, AsyncExitStack() as open_until_all_were_tried:

            async def ask() -> int:
                try:
                    create: Any = ai.responses.create  # Any: the client knows other models
                    await open_until_all_were_tried.enter_async_context(
                        await create(model="patient", input="wait", stream=True)
                    )
                except openai.APIStatusError as refused:
                    return refused.status_code
                return 200

            return await asyncio.gather(*(ask() for _ in range(12)))

    with run_server(path, AGENTS, streams_per_token=2) as server:
        assert sorted(asyncio.run(statuses(server))) == [200] * 2 + [429] * 10


def test_a_stopping_server_answers_clients_that_wait_for_a_complete_response(path: Path) -> None:
    """With an error that no client retries automatically: the request was accepted."""
    with (
        run_server(path, AGENTS, grace_seconds=0.1) as server,
        client_of(server) as ai,
        ThreadPoolExecutor() as elsewhere,
        server.client() as client,
    ):
        patient: Ai = ai.with_options(max_retries=2)
        conversation = ai.conversations.create().id
        waiting = elsewhere.submit(patient.responses.create, model="patient", input="wait", conversation=conversation)
        until_said(client, conversation.replace("conv_", "ses_"), "listening ")

        server.stop()

        refused = waiting.exception()
        assert isinstance(refused, openai.InternalServerError)
        assert (refused.status_code, fault(refused)["code"]) == (503, "closing")


def test_a_client_that_disconnects_frees_its_slot_and_the_turn_continues(path: Path) -> None:
    with run_server(path, AGENTS, streams_per_token=1) as server, client_of(server) as ai:
        conversation = ai.conversations.create().id
        body = json.dumps({"model": "patient", "input": "wait", "conversation": conversation})
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection:
            head = f"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token()}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall((head + body).encode())
            with server.client_with(server.token(name="another")) as watcher:
                until_said(watcher, conversation.replace("conv_", "ses_"), "listening ")
            with pytest.raises(openai.RateLimitError):
                ai.responses.create(model="default", input="next", stream=True)

        until_free(ai)
        with server.client() as client:
            session = client.get(f"/api/sessions/{conversation.replace('conv_', 'ses_')}").json()
        running = session["running"].replace("trn_", "resp_")
        assert ai.responses.cancel(running).output_text == "listening "


def until_free(ai: Ai) -> None:
    """Ask until there is room for a stream."""
    late = time.monotonic() + PATIENCE
    while time.monotonic() < late:
        try:
            ai.responses.create(model="default", input="next")
        except openai.RateLimitError:
            continue
        return
    raise AssertionError("the place was never freed")


def test_a_body_that_is_too_large_or_not_json_is_rejected(server: RunningServer) -> None:
    with client_of(server) as ai, pytest.raises(openai.APIStatusError) as refused:
        ai.responses.create(model="default", input="x" * (2 << 20))
    assert refused.value.status_code == 413
    with server.client() as client:
        for content, kind in ((b"{", "application/json"), (b"hello", "text/plain"), (b"\xff", "application/json")):
            answer = client.post("/v1/responses", content=content, headers={"content-type": kind})
            assert answer.status_code == 400
            assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "ask",
    [
        lambda ai: ai.models.retrieve("gpt-nothing"),
        lambda ai: ai.responses.create(model="gpt-nothing", input="hello"),
        lambda ai: ai.chat.completions.create(model="gpt-nothing", messages=[{"role": "user", "content": "x"}]),
        lambda ai: ai.responses.retrieve("resp_nothing"),
        lambda ai: ai.responses.create(model="default", input="x", conversation="conv_nothing"),
        lambda ai: ai.conversations.retrieve("nothing"),
        lambda ai: ai.get("/nothing", cast_to=object),
    ],
)
def test_missing_objects_are_not_found(server: RunningServer, ask: Callable[[Ai], Any]) -> None:
    with client_of(server) as ai, pytest.raises(openai.NotFoundError) as refused:
        ask(ai)
    assert fault(refused.value)["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("asked", "status", "code", "param"),
    [
        ({"model": "gpt-nothing"}, 404, "model_not_found", "model"),
        ({"previous_response_id": "nothing"}, 400, "previous_response_not_found", "previous_response_id"),
        ({"extra_body": {"sparkle": 1}}, 400, "unknown_parameter", "sparkle"),
        ({"temperature": "warm"}, 400, "invalid_type", "temperature"),
        ({"truncation": "sometimes"}, 400, "invalid_value", "truncation"),
        ({"max_output_tokens": 0}, 400, "invalid_value", "max_output_tokens"),
    ],
)
def test_errors_have_the_codes_that_clients_know(
    server: RunningServer, asked: dict[str, Any], status: int, code: str, param: str
) -> None:
    with client_of(server) as ai, pytest.raises(openai.APIStatusError) as refused:
        ai.responses.create(**({"model": "default", "input": "hello"} | asked))
    told = fault(refused.value)
    assert (refused.value.status_code, told["code"], told["param"]) == (status, code, param)


def test_a_missing_parameter_is_named(server: RunningServer) -> None:
    with server.client() as client:
        told = client.post("/v1/chat/completions", json={"model": "default"}).json()["error"]
    assert told["code"] == "missing_required_parameter"


def test_every_answer_has_a_request_id_of_its_own(server: RunningServer) -> None:
    with client_of(server) as ai:
        raw = ai.responses.with_raw_response
        one, other = (raw.create(model="default", input="hello").headers["x-request-id"] for _ in range(2))
        with pytest.raises(openai.NotFoundError) as refused:
            ai.models.retrieve("gpt-nothing")
    names = [one, other, refused.value.request_id]
    assert all(name.startswith("req_") for name in names)
    assert len(set(names)) == 3


def test_an_ended_session_takes_nothing_more(server: RunningServer) -> None:
    with client_of(server) as ai, server.client() as client:
        conversation = ai.conversations.create().id
        client.post(f"/api/sessions/{conversation.replace('conv_', 'ses_')}/end")
        with pytest.raises(openai.ConflictError) as refused:
            ai.responses.create(model="default", input="hello", conversation=conversation)
        assert fault(refused.value)["code"] == "session_ended"


def test_each_disallowed_method_has_an_error_in_openai_format(server: RunningServer) -> None:
    with server.client() as client:
        for operation in OPERATIONS:
            path = operation.path.replace("{model:path}", "default").replace("{", "").replace("}", "")
            answer = client.request("PATCH", path)
            assert answer.status_code == 405
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_models_are_the_agents_that_are_served(server: RunningServer) -> None:
    with client_of(server) as ai:
        assert [model.id for model in ai.models.list()] == list(AGENTS)
        assert ai.models.retrieve("patient").to_dict() == {
            "id": "patient",
            "object": "model",
            "created": 0,
            "owned_by": "backstay",
        }
