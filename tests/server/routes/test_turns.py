"""Turns over HTTP: submitted once, answered, steered, cancelled; those that wait; history; tool calls; attachments."""

import hashlib
import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import openai
import pytest

from backstay import Text
from backstay.agents import tool
from backstay.agents.port import AgentTurn
from backstay.model.content import Body, ToolCall
from backstay.model.ids import SessionId
from backstay.model.turn import Interrupted
from backstay.store import open_store
from tests.databases import Place
from tests.server.agents import AGENTS
from tests.server.api_calls import (
    accepted,
    answered,
    new_session,
    port_of,
    read,
    say,
    text_of,
    token_of,
    until_ended,
    until_said,
)
from tests.server.openai.openai_client import client_of
from tests.server.running_server import RunningServer, run_server
from tests.server.stream_reader import Reader


def test_an_accepted_turn_is_answered_and_stored(client: httpx2.Client) -> None:
    session = new_session(client)

    response = say(client, session, "good morning")

    assert response.status_code == 202
    turn = response.json()["id"]
    until_ended(client, session, turn)
    assert client.get(response.headers["location"]).json()["outcome"] == {"type": "completed"}
    assert [text_of(message) for message in read(client, session)] == ["good morning", "good morning "]


def test_a_request_that_is_repeated_is_the_same_turn(client: httpx2.Client) -> None:
    session = new_session(client)
    with ThreadPoolExecutor(8) as threads:
        responses = list(threads.map(lambda _: say(client, session, "once", key="k1"), range(8)))

    assert {response.status_code for response in responses} == {202}
    assert len({response.json()["id"] for response in responses}) == 1
    assert [response.json()["repeated"] for response in responses].count(False) == 1
    other = say(client, session, "something else", key="k1")
    assert (other.status_code, other.json()["code"]) == (422, "request_mismatch")


def test_an_agent_that_was_never_served_is_refused_with_the_nearest_name(client: httpx2.Client) -> None:
    session = new_session(client)

    refused = say(client, session, "hello", agent="pateint")

    assert (refused.status_code, refused.json()["code"]) == (422, "unknown_agent")
    assert "'patient'" in refused.json()["hint"]
    assert client.get(f"/api/sessions/{session}").json()["waiting"] == 0
    queued = say(client, session, "hello", agent="later", allow_unserved=True)
    assert queued.status_code == 202
    assert client.get(f"/api/sessions/{session}").json()["waiting"] == 1


def test_a_submission_to_a_changed_session_is_refused(client: httpx2.Client) -> None:
    session = new_session(client)
    seen = client.get(f"/api/sessions/{session}").headers["etag"]
    client.patch(f"/api/sessions/{session}", json={"title": "Changed"})

    refused = client.post(f"/api/sessions/{session}/turns", json={"text": "hello"}, headers={"if-match": seen})

    assert refused.status_code == 412


def test_a_busy_session_does_what_the_sender_chose(client: httpx2.Client) -> None:
    session = new_session(client)
    running = accepted(client, session, "hello", agent="patient")

    rejected = say(client, session, "again", if_busy="reject")
    forked = say(client, session, "again", if_busy="fork")
    waiting = accepted(client, session, "later")

    assert (rejected.status_code, rejected.json()["code"]) == (409, "session_busy")
    assert forked.json()["forked_from"] == session != forked.json()["session"]
    assert client.get(f"/api/turns/{waiting}").json()["state"] == "waiting"
    assert client.post(f"/api/turns/{running}/cancel").json()["outcome"]["type"] == "cancelled"


def test_a_running_turn_is_steered(client: httpx2.Client) -> None:
    session = new_session(client)
    turn = accepted(client, session, "hello", agent="patient")
    until_said(client, session, "listening ")

    assert client.post(f"/api/sessions/{session}/steer", json={"text": "enough"}).status_code == 202

    until_ended(client, session, turn)
    assert text_of(read(client, session)[-1]).endswith("heard enough ")


def test_cancelling_keeps_the_output(client: httpx2.Client) -> None:
    session = new_session(client)
    turn = accepted(client, session, "hello", agent="patient")
    until_said(client, session, "listening ")

    cancelled = client.post(f"/api/turns/{turn}/cancel").json()

    assert cancelled["outcome"]["type"] == "cancelled"
    last = read(client, session)[-1]
    assert (text_of(last), last["partial"]) == ("listening ", True)
    assert client.post(f"/api/turns/{turn}/cancel").json()["outcome"] == cancelled["outcome"]


def test_turns_that_wait_can_be_edited_withdrawn_and_reordered(client: httpx2.Client) -> None:
    session = new_session(client)
    running = accepted(client, session, "hello", agent="patient")
    first, second, third = (accepted(client, session, word) for word in ("first", "second", "third"))

    assert client.patch(f"/api/turns/{second}", json={"text": "2nd"}).json()["input"] == [
        {"type": "text", "text": "2nd"}
    ]
    assert client.delete(f"/api/turns/{first}").json()["outcome"]["type"] == "cancelled"
    order = client.put(f"/api/sessions/{session}/waiting", json={"turns": [third, second]}).json()["turns"]

    assert [turn["id"] for turn in order] == [third, second]
    assert client.get(f"/api/sessions/{session}/waiting").json()["turns"] == order
    client.post(f"/api/turns/{running}/cancel")
    until_ended(client, session, second)
    asked = [text_of(message) for message in read(client, session) if message["role"] == "user"]
    assert asked == ["hello", "third", "2nd"]
    assert client.patch(f"/api/turns/{second}", json={"text": "late"}).status_code == 409
    assert client.put(f"/api/sessions/{session}/waiting", json={"turns": [second]}).status_code == 409


def test_undo_redo_retry_edit_and_fork(client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, "one")
    answered(client, session, "two")

    assert client.post(f"/api/sessions/{session}/undo").json()["length"] == 2
    assert client.post(f"/api/sessions/{session}/redo").json()["length"] == 4
    assert client.post(f"/api/sessions/{session}/redo").status_code == 409
    until_ended(client, session, client.post(f"/api/sessions/{session}/retry").json()["id"])
    first = read(client, session)[0]["id"]
    edited = client.post(f"/api/sessions/{session}/messages/{first}/edit", json={"text": "uno"})
    until_ended(client, session, edited.json()["id"])
    assert [text_of(message) for message in read(client, session)] == ["uno", "uno "]

    forked = client.post(f"/api/sessions/{session}/fork", json={})
    assert forked.status_code == 201
    assert read(client, forked.json()["id"]) == read(client, session)


def test_a_session_with_nothing_to_compact_is_unchanged(client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, "hello")
    before = client.get(f"/api/sessions/{session}").json()

    compacted = client.post(f"/api/sessions/{session}/compact", json={})

    assert compacted.status_code == 200
    assert compacted.json()["id"] == before["window"]


OUR_MESSAGES = [
    {"role": "user", "parts": [{"type": "text", "text": "what time is it?"}]},
    {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "clock"}]},
    {"role": "tool", "parts": [{"type": "tool_result", "id": "c1", "output": "noon"}]},
    {"role": "assistant", "parts": [{"type": "text", "text": "noon"}], "partial": True},
]
OPENAI_MESSAGES = [
    {"role": "user", "content": [{"type": "text", "text": "what time is it?"}]},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "clock"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "noon"},
    {"role": "assistant", "content": "noon", "refusal": None},
]


@pytest.mark.parametrize("messages", [OUR_MESSAGES, OPENAI_MESSAGES], ids=["ours", "OpenAI's"])
def test_messages_of_an_agent_elsewhere_are_recorded_once(client: httpx2.Client, messages: list[object]) -> None:
    session = new_session(client)

    first, again = (
        client.post(
            f"/api/sessions/{session}/record", json={"messages": messages}, headers={"idempotency-key": "import"}
        ).json()
        for _ in range(2)
    )

    assert (first["repeated"], again["repeated"]) == (False, True)
    assert first["turn"]["id"] == again["turn"]["id"]
    assert [message["role"] for message in read(client, session)] == ["user", "assistant", "tool", "assistant"]
    assert read(client, session)[2]["parts"] == [{"type": "tool_result", "id": "c1", "output": "noon"}]


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize(
    ("message", "says"),
    [
        ({"role": "user"}, "messages[0] has no content"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0] is of type 'image_url'"),
        ({"role": "user", "content": "a", "parts": [{"type": "text", "text": "b"}]}, "either `parts` or `content`"),
        ({"role": "user", "content": [{"type": "attachment"}]}, "messages[0].content[0] is not an attachment"),
    ],
)
def test_a_malformed_message_is_not_recorded(client: httpx2.Client, message: object, says: str) -> None:
    session = new_session(client)

    refused = client.post(f"/api/sessions/{session}/record", json={"messages": [message]})

    assert refused.status_code == 422
    assert says in refused.json()["title"] + refused.json().get("detail", "")
    assert read(client, session) == []


@pytest.mark.parametrize("approved", [True, False])
def test_a_tool_waits_for_a_person_who_saw_its_arguments(client: httpx2.Client, approved: bool) -> None:
    session = new_session(client)
    turn = accepted(client, session, "go", agent="careful")
    until_tool_asks(client, session)
    [call] = client.get(f"/api/turns/{turn}/calls").json()["calls"]
    decision = f"/api/turns/{turn}/calls/{call['call']}/decision"

    other = client.put(decision, json={"approved": True, "arguments_hash": "0" * 32})
    decided = client.put(decision, json={"approved": approved, "arguments_hash": call["arguments_hash"]})

    assert other.status_code == 409
    assert decided.json()["approval"] == ("approved" if approved else "denied")
    until_ended(client, session, turn)
    outcome = client.get(f"/api/turns/{turn}").json()["outcome"]["type"]
    assert outcome == ("completed" if approved else "failed")


def test_a_person_lets_a_call_that_may_have_run_be_made_again(server: RunningServer, client: httpx2.Client) -> None:
    session = new_session(client)
    with open_store(server.settings.db) as store:
        proof = store.submit(SessionId(session), "pay", owner="local", agent="elsewhere", start=True).opened
        assert proof is not None
        proof = store.checkpoint(proof, [ToolCall("c1", "pay", {"amount": 5})]).open
        store.finish(proof, Interrupted("stopped"))
    [call] = client.get(f"/api/turns/{proof.id}/calls").json()["calls"]
    decision = f"/api/turns/{proof.id}/calls/c1/decision"

    plain = client.put(decision, json={"approved": True})
    refused = client.put(decision, json={"approved": False, "run_again": True})
    allowed = client.put(decision, json={"approved": True, "arguments_hash": call["arguments_hash"], "run_again": True})

    assert (plain.status_code, refused.status_code) == (409, 422)
    assert (call["effect"], call["run_again"]) == ("unknown", "none")
    assert (allowed.json()["effect"], allowed.json()["run_again"]) == ("unknown", "approved")


def until_tool_asks(client: httpx2.Client, session: str) -> None:
    with Reader(port_of(client), token_of(client), f"sessions={session}") as reader:
        reader.until("event", kind="tool_called")


def test_a_file_is_uploaded_in_chunks_attached_and_read_in_ranges(client: httpx2.Client) -> None:
    content = bytes(range(256)) * 5_000
    upload = client.post("/api/uploads").json()["id"]
    binary = {"content-type": "application/octet-stream"}
    for start in range(0, len(content), 500_000):
        piece = content[start : start + 500_000]
        for _ in range(2):  # a chunk that is sent again is harmless
            sent = client.put(f"/api/uploads/{upload}", params={"start": start}, content=piece, headers=binary)
            assert sent.json()["size"] == start + len(piece)
    digest = hashlib.sha256(content).hexdigest()
    blob = client.post(f"/api/uploads/{upload}/finish", json={"hash": digest}).json()
    assert blob == {"hash": digest, "size": len(content)}

    session = new_session(client)
    part = {"type": "attachment", "blob": digest, "name": "all.bin", "media_type": "text/html", "size": len(content)}
    turn = client.post(f"/api/sessions/{session}/turns", json={"parts": [{"type": "text", "text": "see"}, part]})
    until_ended(client, session, turn.json()["id"])

    got = b""
    while len(got) < len(content):
        ranged = client.get(f"/api/blobs/{digest}", headers={"range": f"bytes={len(got)}-"})
        assert ranged.status_code == 206
        assert (
            ranged.headers["content-range"] == f"bytes {len(got)}-{len(got) + len(ranged.content) - 1}/{len(content)}"
        )
        assert ranged.headers["content-type"] == "application/octet-stream"
        assert ranged.headers["content-disposition"].startswith("attachment")
        got += ranged.content
    assert got == content
    whole = client.get(f"/api/blobs/{digest}")
    assert (whole.status_code, whole.content == content) == (200, True)
    head = client.head(f"/api/blobs/{digest}")
    assert (head.status_code, head.headers["content-length"], head.content) == (200, str(len(content)), b"")
    assert client.get(f"/api/blobs/{digest}", headers={"range": "bytes=-3"}).content == content[-3:]
    assert client.get(f"/api/blobs/{digest}", headers={"range": "bytes=10-19"}).content == content[10:20]
    beyond = client.get(f"/api/blobs/{digest}", headers={"range": f"bytes={len(content)}-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{len(content)}")


def test_an_upload_with_another_hash_than_promised_is_refused(client: httpx2.Client) -> None:
    upload = client.post("/api/uploads").json()["id"]
    client.put(f"/api/uploads/{upload}", content=b"abc", headers={"content-type": "application/octet-stream"})

    assert client.post(f"/api/uploads/{upload}/finish", json={"hash": "0" * 64}).status_code in (409, 422)


def test_content_that_is_nested_too_deep_is_refused(client: httpx2.Client) -> None:
    session = new_session(client)
    deep = b'{"parts": [{"type": "custom", "kind": "x", "data": ' + b"[" * 5_000 + b"]" * 5_000 + b"}]}"
    shallow = b'{"parts": [{"type": "custom", "kind": "x", "data": ' + b"[" * 100 + b"]" * 100 + b"}]}"
    headers = {"content-type": "application/json"}

    statuses = [
        client.post(f"/api/sessions/{session}/turns", content=body, headers=headers).status_code
        for body in (deep, shallow)
    ]

    assert set(statuses) <= {400, 422}
    assert client.get(f"/api/sessions/{session}").json()["last_event"] == 1


def test_two_servers_on_one_database_serve_the_same_turns(server: RunningServer) -> None:
    with run_server(server.place, AGENTS) as other, server.client() as here, other.client() as there:
        session = new_session(here)
        turn = accepted(here, session, "hello", agent="patient")
        until_said(there, session, "listening ")

        assert there.post(f"/api/turns/{turn}/cancel").json()["outcome"]["type"] == "cancelled"

        until_ended(here, session, turn)


# --- exceptions of agents -------------------------------------------------------------------------------------------

SECRET = "postgres://bot:hunter2@bank.example"


def look() -> None:
    """Look something up, and raise."""
    raise ConnectionError(SECRET)


async def broken(turn: AgentTurn) -> AsyncIterator[Body]:
    """Calls a tool that raises, or raises itself."""
    yield Text("one moment ")
    if turn.input.text == "look":
        await turn.call(tool(look), {})
    raise ConnectionError(SECRET)


@pytest.mark.parametrize("word", ["raise", "look"])
def test_no_client_gets_the_text_of_an_agents_exception(path: Place, word: str) -> None:
    with run_server(path, {"broken": broken}) as server, server.client() as client, client_of(server) as ai:
        session = new_session(client)
        turn = accepted(client, session, word, agent="broken")
        seen = [repr(until_ended(client, session, turn))]
        asked = ("", "/messages", "/events", "/turns", "/export", "/lineage")
        seen += [client.get(f"/api/sessions/{session}{part}").text for part in asked]
        seen += [client.get(f"/api/turns/{turn}{part}").text for part in ("", "/calls")]
        response = ai.responses.create(model="broken", input=word)
        seen += [response.to_json(), ai.responses.retrieve(response.id).to_json()]
        seen += [repr(list(ai.responses.create(model="broken", input=word, stream=True)))]
        with pytest.raises(openai.APIStatusError) as refused:
            ai.chat.completions.create(model="broken", messages=[{"role": "user", "content": word}])
        seen.append(refused.value.response.text)

    assert [text for text in seen if "hunter2" in text] == []
    assert f"ConnectionError (turn {turn}; the log has the traceback)" in seen[0]
    assert "raised ConnectionError" in response.error.message
    assert "raised ConnectionError" in json.loads(seen[-1])["error"]["message"]
