"""The OpenAPI document: it says what is served, and what is served is what it says."""

import re
from typing import Any

import httpx2
import jsonschema_rs
import msgspec
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy, booleans
from schemathesis import GenerationMode
from schemathesis.checks import (
    CheckFunction,
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)

from backstay.server.application import OPERATIONS
from backstay.server.http.openapi import document
from tests.effort import tries
from tests.server.api_calls import accepted, answered, new_session
from tests.server.running_server import PATIENCE, RunningServer

# What is checked here happens in front of the store, or is a fact of its contract: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")

# Cases per operation.
CASES = tries(4, 6, 500)
# What fails here is a request: there is nothing to gain from minutes of making it smaller.
PHASES = [Phase.generate]

CHECKS: list[CheckFunction] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def test_the_document_is_served_and_names_every_operation_once(client: httpx2.Client) -> None:
    served = client.get("/api/openapi.json").json()

    assert served == msgspec.json.decode(msgspec.json.encode(document(OPERATIONS)))
    named = [operation["operationId"] for path in served["paths"].values() for operation in path.values()]
    assert sorted(named) == sorted({operation.name for operation in OPERATIONS})
    assert served["openapi"].startswith("3.1")


def test_every_reference_in_the_document_leads_somewhere(client: httpx2.Client) -> None:
    text = client.get("/api/openapi.json").text
    known = client.get("/api/openapi.json").json()["components"]["schemas"]

    assert set(re.findall(r'"#/components/schemas/(\w+)"', text)) <= set(known)


def test_real_answers_are_what_the_document_says(client: httpx2.Client) -> None:
    spoken = document(OPERATIONS)
    session = new_session(client)
    answered(client, session, "one two")
    turn = accepted(client, session, "hello", agent="patient")
    accepted(client, session, "later")
    for path in (
        f"/api/sessions/{session}",
        f"/api/sessions/{session}/messages",
        f"/api/sessions/{session}/events",
        f"/api/sessions/{session}/lineage",
        f"/api/sessions/{session}/waiting",
        f"/api/sessions/{session}/marks",
        f"/api/turns/{turn}",
        f"/api/turns/{turn}/calls",
        "/api/sessions",
        "/api/search?q=one",
        "/api/tokens",
        "/api/me",
    ):
        answer = client.get(path)
        assert answer.status_code == 200
        template = path.partition("?")[0].replace(session, "{session}").replace(turn, "{turn}")
        validate(spoken, spoken["paths"][template]["get"]["responses"]["200"], answer)


def validate(spoken: dict[str, Any], response: dict[str, Any], answer: httpx2.Response) -> None:
    """Raise unless the answer has the shape that the document promises."""
    schema = response["content"]["application/json"]["schema"] | {"components": spoken["components"]}
    jsonschema_rs.validator_for(schema).validate(answer.json())


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_whatever_is_sent_the_answer_is_documented_and_never_a_fault(
    server: RunningServer, mode: GenerationMode
) -> None:
    schema = schemathesis.openapi.from_dict(document(OPERATIONS))
    with server.client() as client, requests.Session() as connection:
        connection.headers["authorization"] = f"Bearer {server.token()}"
        known = names_in(client)
        # What would take the others' ground away comes last.
        for operation in sorted(OPERATIONS, key=lambda one: one.method == "DELETE" or one.name == "end_session"):
            if operation.name != "follow":
                attack(schema[operation.path][operation.method].as_strategy(mode), known, server, connection)
        assert client.get("/readyz").status_code == 200


def attack(
    cases: SearchStrategy[Any], known: dict[str, str], server: RunningServer, connection: requests.Session
) -> None:
    """Send what was thought of, half of the time to something that exists."""

    @settings(max_examples=CASES, deadline=None, database=None, phases=PHASES, suppress_health_check=list(HealthCheck))
    @given(case=cases, exists=booleans())
    def send(case: Any, exists: bool) -> None:
        if exists:
            case.path_parameters = {name: known[name] for name in case.path_parameters}
        case.call_and_validate(base_url=server.url, session=connection, checks=CHECKS, timeout=PATIENCE)

    send()


def names_in(client: httpx2.Client) -> dict[str, str]:
    """Something that exists, of each kind that a path can name."""
    session = new_session(client)
    turn = answered(client, session, "hello")
    return {
        "session": session,
        "turn": turn,
        "message": client.get(f"/api/sessions/{session}/messages").json()["messages"][0]["id"],
        "upload": client.post("/api/uploads").json()["id"],
        "token": client.post("/api/tokens", json={"name": "doomed"}).json()["token"]["id"],
        "blob": "0" * 64,
        "call": "c1",
    }


def test_whatever_is_asked_of_the_stream_is_no_fault(client: httpx2.Client) -> None:
    operation = schemathesis.openapi.from_dict(document(OPERATIONS))["/api/events"]["GET"]

    @settings(max_examples=CASES * 4, deadline=None, database=None, phases=PHASES)
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        asked = {str(name): str(value)[:1_000] for name, value in (case.query or {}).items()}
        told = str((case.headers or {}).get("Last-Event-ID", ""))
        headers = {"last-event-id": told} if told.isascii() and told.isprintable() else {}
        with client.stream("GET", "/api/events", params=asked, headers=headers) as answer:
            assert answer.status_code in (200, 400, 404, 422)

    ask()
