"""Any request to the OpenAI-compatible API gets a response in its format and never 500."""

from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from backstay.server.http.operation import AnyOperation
from backstay.server.openai.operations import OPERATIONS
from tests.effort import tries
from tests.server.running_server import RunningServer

# These tests are about code above the store, or about rules of its contract: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")


@pytest.fixture
def server(shared_server: RunningServer) -> RunningServer:
    return shared_server.for_somebody_new()


CASES = tries(10, 25, 500)
WORDS = (
    "type role user assistant tool system developer message content input_text output_text text function_call name"
    " function_call_output call_id arguments output reasoning summary default scripted conv_ resp_ auto function id"
    " openai.item request"
).split()

scalars = st.none() | st.booleans() | st.integers(-3, 1 << 40) | st.sampled_from(WORDS) | st.just("") | st.just("\0")
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=8,
)


def fields_of(operation: AnyOperation) -> list[str]:
    return [name for name in operation.body.__struct_fields__ if name != "stream"]


def bodies(operation: AnyOperation) -> st.SearchStrategy[Any]:
    """Bodies that have the right fields, mostly, and anything in them."""
    items = st.lists(st.dictionaries(st.sampled_from(WORDS), values, max_size=5), max_size=3)
    usual = {"model": "default", "input": "hello", "messages": [{"role": "user", "content": "hello"}], "items": []}
    known = {name: usual[name] for name in usual if name in operation.body.__struct_fields__}
    odd = st.dictionaries(st.sampled_from([*fields_of(operation), "sparkle"]), values | items, max_size=3)
    return odd.map(lambda more: known | more) | values


@pytest.mark.parametrize(
    "operation", [one for one in OPERATIONS if one.takes_body], ids=lambda operation: operation.name
)
def test_any_body_is_answered_or_rejected(server: RunningServer, operation: AnyOperation) -> None:
    with server.client() as client:
        conversation = client.post("/v1/conversations", json={}).json()["id"]

        @settings(
            max_examples=CASES,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(body=bodies(operation))
        def send(body: Any) -> None:
            answer = client.post(operation.path.replace("{conversation}", conversation), json=body)
            check(answer)

        send()
        check(client.get(f"/v1/conversations/{conversation}/items"))


def check(answer: httpx2.Response) -> None:
    assert answer.status_code in (200, 400, 404, 409, 413, 422), answer.text
    if answer.status_code != 200:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "data",
    [
        {"tools": 7},
        {"metadata": 7, "store": "x"},
        {"items": "trn_nothing"},
        {"reasoning": "x", "text": []},
        {"item": {}, "parts": -1},
        {"item": {"type": "message"}, "parts": -3},
        7,
    ],
)
def test_a_turn_from_the_other_api_is_shown_with_any_content(server: RunningServer, data: Any) -> None:
    with server.client() as client:
        session = client.post("/api/sessions", json={}).json()["id"]
        parts = [{"type": "text", "text": "hello"}, {"type": "custom", "kind": "request", "data": data}]
        parts.append({"type": "custom", "kind": "openai.item", "data": data})
        turn = client.post(f"/api/sessions/{session}/turns", json={"parts": parts}).json()["id"]
        response = turn.replace("trn_", "resp_")
        with client.stream("GET", f"/v1/responses/{response}", params={"stream": "true"}) as stream:
            assert "response.completed" in "".join(stream.iter_lines())
        assert client.get(f"/v1/responses/{response}").json()["status"] == "completed"
        assert client.get(f"/v1/responses/{response}/input_items").status_code in (200, 404)
        items = client.get(f"/v1/conversations/{session.replace('ses_', 'conv_')}/items").json()
        assert items["data"][-1]["content"][0]["text"] == "hello"


@pytest.mark.parametrize("where", ["/v1/responses/{}", "/v1/responses/{}/input_items", "/v1/conversations/{}/items"])
@pytest.mark.parametrize("query", ["stream=maybe", "limit=x", "starting_after=-5", "limit=1&limit=2", "sparkle=1"])
def test_an_invalid_query_is_rejected(server: RunningServer, where: str, query: str) -> None:
    with server.client() as client:
        answer = client.get(f"{where.format('resp_01m7j9vf4jf4msapk2gvh096md')}?{query}")
        assert answer.status_code == 400
        check(answer)


def test_turns_without_an_agent_are_not_responses(server: RunningServer) -> None:
    with server.client() as client:
        session = client.post("/api/sessions", json={}).json()["id"]
        message = {"role": "user", "parts": [{"type": "text", "text": "hello"}]}
        recorded = client.post(f"/api/sessions/{session}/record", json={"messages": [message]}).json()["turn"]["id"]
        assert client.get(f"/v1/responses/{recorded.replace('trn_', 'resp_')}").status_code == 404
