"""The OpenAPI document matches the served operations."""

import json
import re
from collections.abc import Iterator
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

from backstay.server.application import OPERATIONS, described
from backstay.server.openai.operations import OPERATIONS as OPENAI_OPERATIONS
from tests.effort import tries
from tests.server.api_calls import accepted, answered, new_session
from tests.server.running_server import PATIENCE, RunningServer

# These tests are about code above the store, or about rules of its contract: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")

# Cases per operation.
CASES = tries(4, 6, 500)
# A failing example is one request, so minutes of shrinking gain nothing.
PHASES = [Phase.generate]

CHECKS: list[CheckFunction] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def test_the_document_is_served_and_names_every_operation_once(client: httpx2.Client) -> None:
    served = client.get("/api/openapi.json").json()

    assert served == msgspec.json.decode(msgspec.json.encode(described()))
    named = [operation["operationId"] for path in served["paths"].values() for operation in path.values()]
    operations = {operation.name for operation in (*OPERATIONS, *OPENAI_OPERATIONS)}
    assert sorted(named) == sorted(operations | {"health", "readiness", "metrics", "document"})
    assert served["openapi"].startswith("3.1")


def test_every_reference_in_the_document_leads_somewhere(client: httpx2.Client) -> None:
    text = client.get("/api/openapi.json").text
    known = client.get("/api/openapi.json").json()["components"]["schemas"]

    assert set(re.findall(r'"#/components/schemas/(\w+)"', text)) <= set(known)


def test_the_names_of_schemas_are_unique_plain_words() -> None:
    names = list(described()["components"]["schemas"])

    assert [name for name in names if not re.fullmatch(r"[A-Z][A-Za-z]+", name)] == []
    assert len({name.lower() for name in names}) == len(names)


def test_no_schema_or_path_has_a_name_that_hides_one_of_a_generated_client() -> None:
    """Generated Python has a variable for each field beside one for the object, and `response` in each operation."""
    spoken = described()

    for name, schema in spoken["components"]["schemas"].items():
        same = schema.get("properties", {}).get(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower(), {})
        assert same.get("type") != "array", name
    assert not [path for path in spoken["paths"] if "{response}" in path or ":" in path]


def test_no_schema_uses_what_generators_do_not_know() -> None:
    written = msgspec.json.encode(described()).decode()

    assert "prefixItems" not in written
    assert '"items":false' not in written
    assert not re.search(r'"enum":\["[^",]*"\]', written)  # a tag is a constant


def test_each_stream_describes_its_frames(client: httpx2.Client) -> None:
    spoken = described()
    streams = {
        path: schema["schema"]
        for path, operations in spoken["paths"].items()
        for operation in operations.values()
        for kind, schema in operation["responses"].get("200", {}).get("content", {}).items()
        if kind == "text/event-stream"
    }
    assert set(streams) == {"/api/events", "/v1/responses", "/v1/responses/{response_id}", "/v1/chat/completions"}

    session = new_session(client)
    answered(client, session, "hello")
    schema = streams["/api/events"] | {"components": spoken["components"]}
    validator, kinds = jsonschema_rs.validator_for(schema), set()
    with client.stream("GET", f"/api/events?sessions={session}&feed=true") as stream:
        for frame in frames_of(stream.iter_lines()):
            validator.validate(frame)
            kinds.add(frame["event"])
            if kinds == {"event", "snapshot"}:
                break


def frames_of(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The frames with data, as the document describes them."""
    frame: dict[str, Any] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line and name:
            frame[name] = value
        elif "data" in frame:
            yield {name: json.loads(value) if name == "data" else value for name, value in frame.items()}
            frame = {}
        else:
            frame = {}


def test_real_responses_match_the_document(client: httpx2.Client) -> None:
    spoken = described()
    session = new_session(client)
    answered(client, session, "one two")
    turn = accepted(client, session, "hello", agent="patient")
    accepted(client, session, "later")
    wanted = {"when": "day 9:00", "text": "tea?", "address": "chat://telegram/dm/42"}
    schedule = client.post("/api/schedules", json=wanted).json()["id"]
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
        f"/api/schedules/{schedule}",
        f"/api/schedules/{schedule}/log",
        "/api/schedules",
        "/api/gateways",
        "/api/tokens",
        "/api/me",
        "/v1/models",
        "/healthz",
        "/readyz",
    ):
        answer = client.get(path)
        assert answer.status_code == 200
        template = (
            path.partition("?")[0].replace(session, "{session}").replace(turn, "{turn}").replace(schedule, "{schedule}")
        )
        validate(spoken, spoken["paths"][template]["get"]["responses"]["200"], answer)


def validate(spoken: dict[str, Any], response: dict[str, Any], answer: httpx2.Response) -> None:
    """Raise unless the answer has the shape that the document promises."""
    schema = response["content"]["application/json"]["schema"] | {"components": spoken["components"]}
    jsonschema_rs.validator_for(schema).validate(answer.json())


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_any_request_gets_a_documented_response_and_never_500(server: RunningServer, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_dict(described())
    with server.client() as client, requests.Session() as connection:
        connection.headers["authorization"] = f"Bearer {server.token()}"
        known = names_in(client)
        # Operations that delete the data of others come last.
        for operation in sorted(OPERATIONS, key=lambda one: one.method == "DELETE" or one.name == "end_session"):
            if operation.name != "follow":
                attack(schema[operation.path][operation.method].as_strategy(mode), known, server, connection)
        assert client.get("/readyz").status_code == 200


def attack(
    cases: SearchStrategy[Any], known: dict[str, str], server: RunningServer, connection: requests.Session
) -> None:
    """Send the generated request, half of the time to an existing object."""

    @settings(max_examples=CASES, deadline=None, database=None, phases=PHASES, suppress_health_check=list(HealthCheck))
    @given(case=cases, exists=booleans())
    def send(case: Any, exists: bool) -> None:
        if exists:
            case.path_parameters = {name: known[name] for name in case.path_parameters}
        case.call_and_validate(base_url=server.url, session=connection, checks=CHECKS, timeout=PATIENCE)

    send()


def names_in(client: httpx2.Client) -> dict[str, str]:
    """An existing object of each kind that a path can name."""
    session = new_session(client)
    turn = answered(client, session, "hello")
    return {
        "session": session,
        "turn": turn,
        "message": client.get(f"/api/sessions/{session}/messages").json()["messages"][0]["id"],
        "upload": client.post("/api/uploads").json()["id"],
        "token": client.post("/api/tokens", json={"name": "doomed"}).json()["token"]["id"],
        "schedule": client.post("/api/schedules", json={"when": "day 9:00", "text": "tea?", "session": session}).json()[
            "id"
        ],
        "platform": "telegram",
        "account": "7",
        "person": "42",
        "blob": "0" * 64,
        "webhook": "ops",
        "device": "1",
        "call": "c1",
    }


def test_no_query_of_the_stream_causes_500(client: httpx2.Client) -> None:
    operation = schemathesis.openapi.from_dict(described())["/api/events"]["GET"]

    @settings(max_examples=CASES * 4, deadline=None, database=None, phases=PHASES)
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        asked = {str(name): str(value)[:1_000] for name, value in (case.query or {}).items()}
        told = str((case.headers or {}).get("Last-Event-ID", ""))
        headers = {"last-event-id": told} if told.isascii() and told.isprintable() else {}
        with client.stream("GET", "/api/events", params=asked, headers=headers) as answer:
            assert answer.status_code in (200, 400, 404, 422)

    ask()
