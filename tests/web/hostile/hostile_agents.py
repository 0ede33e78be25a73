"""Hostile text in every place that shows text: output of agents, and names given by users and programs."""

from collections.abc import AsyncIterator, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

import httpx2

from backstay import Address, Text
from backstay.agents.adapters import AgentLike
from backstay.agents.port import AgentTurn
from backstay.errors import AgentFailed
from backstay.model.content import Body, Custom, Thought, ToolCall, ToolResult
from tests.server.agents import patient
from tests.server.api_calls import accepted, answered, new_session, until_said
from tests.web.hostile.hostile_text import PAYLOADS


async def hostile(turn: AgentTurn) -> AsyncIterator[Body]:
    """Every payload, or a `few`, as text, thoughts, names of tools, arguments, output, errors and custom output."""
    for number, payload in enumerate(PAYLOADS[:5] if turn.input.text == "few" else PAYLOADS):
        yield Thought(payload)
        yield Text(f"{payload}\n\n")
        yield ToolCall(f"c{number}", payload[:200], {payload: payload})
        yield ToolResult(f"c{number}", {payload: payload} if number % 2 else payload, error=number % 3 == 0)
        yield Custom(payload[:200], payload)
    if "fail" in turn.input.text:
        raise AgentFailed(PAYLOADS[1])


async def failing(turn: AgentTurn) -> AsyncIterator[Body]:
    """Repeats its input, and raises it as an error."""
    yield Text(turn.input.text)
    raise AgentFailed(turn.input.text)


# Every payload is also the name of an agent.
AGENTS: Mapping[str, AgentLike] = {"hostile": hostile, "patient": patient} | dict.fromkeys(PAYLOADS, failing)


class Furnished(NamedTuple):
    """Sessions in which every payload has been in every place."""

    said: str
    waiting: str
    fork: str


def furnish(client: httpx2.Client) -> Furnished:
    """Use every payload as a name: of sessions, tags, platforms, files, forks and tokens; send it, queue it."""
    for payload in PAYLOADS:
        called(client, behind(client, Address.chat(payload, payload, chat=payload)), payload)
        assert client.post("/api/tokens", json={"name": payload}).status_code == 201
    said = new_session(client)
    for payload in PAYLOADS:
        answered(client, said, payload, agent=payload)
    assert client.post(f"/api/sessions/{said}/compact", json={"keep": 0}).status_code < 300
    forks = [client.post(f"/api/sessions/{said}/fork", json={}).json()["id"] for _ in PAYLOADS]
    for fork, payload in zip(forks, PAYLOADS, strict=True):
        called(client, fork, payload)
    waiting = new_session(client)
    accepted(client, waiting, "wait", agent="patient")
    until_said(client, waiting, "listening ")
    for payload in PAYLOADS:
        accepted(client, waiting, payload, agent="patient")
    with_files(client, said)
    return Furnished(said, waiting, forks[0])


def behind(client: httpx2.Client, address: Address) -> str:
    """The session of an address."""
    return str(client.post("/api/sessions", json={"address": str(address)}).json()["id"])


def called(client: httpx2.Client, session: str, payload: str) -> None:
    """Use this text as title and tag of a session."""
    filed = client.patch(f"/api/sessions/{session}", json={"title": payload, "add_tags": [payload]})
    assert filed.status_code == 200, filed.text


def with_files(client: httpx2.Client, session: str, names: Sequence[str] = PAYLOADS) -> None:
    """Send a message with files of this name."""
    upload = client.post("/api/uploads").json()["id"]
    binary = {"content-type": "application/octet-stream"}
    client.put(f"/api/uploads/{upload}", params={"start": 0}, content=b"x", headers=binary)
    client.post(f"/api/uploads/{upload}/finish", json={})
    file = {"type": "attachment", "blob": sha256(b"x").hexdigest(), "media_type": "text/html", "size": 1}
    parts = [{**file, "name": name} for name in names]
    said = client.post(f"/api/sessions/{session}/record", json={"messages": [{"role": "user", "parts": parts}]})
    assert said.status_code == 200, said.text
