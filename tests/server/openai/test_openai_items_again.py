"""Items of ours that a client sends back: whole, as references, or changed, as clients without sessions do."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.server.openai.openai_client import Ai, client_of, fault
from tests.server.running_server import RunningServer

# These tests are about code above the store, or about rules of its contract: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")

TALK = "think about tea\ncalc 6*7\ncalc 1/0\nhello"


@pytest.fixture
def server(shared_server: RunningServer) -> RunningServer:
    return shared_server.for_somebody_new()


@pytest.fixture
def ai(server: RunningServer) -> Iterator[Ai]:
    with client_of(server) as client:
        yield client


def items(ai: Ai, conversation: str) -> list[dict[str, Any]]:
    return [item.to_dict() for item in ai.conversations.items.list(conversation, order="asc")]


def recorded(server: RunningServer, ai: Ai, response: Any) -> list[dict[str, Any]]:
    """The input of a response and everything before it, without the ids, which differ in every copy."""
    asked = ai.responses.input_items.list(response.id, order="asc")
    return [without_names(item.to_dict()) for item in asked]


def without_names(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in ("id", "status") and value is not None}


def test_everything_that_a_response_put_out_can_be_sent_back(server: RunningServer, ai: Ai) -> None:
    first = ai.responses.create(model="scripted", input=TALK)
    output = [item.to_dict() for item in first.output]
    assert {item["type"] for item in output} == {"reasoning", "mcp_call", "message"}
    assert {item["status"] for item in output if item["type"] == "mcp_call"} == {"completed", "failed"}

    sent = [{"role": "user", "content": TALK}, *output, {"role": "user", "content": "usage"}]
    second = ai.responses.create(model="scripted", input=sent)

    assert second.status == "completed"
    assert recorded(server, ai, second)[1:-1] == [without_names(item) for item in output]


def test_references_stand_for_the_items_that_we_issued(server: RunningServer, ai: Ai) -> None:
    first = ai.responses.create(model="scripted", input=TALK)
    references = [{"type": "item_reference", "id": item.id} for item in first.output]

    again = ai.responses.create(
        model="scripted", input=[{"role": "user", "content": TALK}, *references, {"role": "user", "content": "usage"}]
    )
    bare = ai.responses.create(model="scripted", input=[{"id": first.output[0].id}, {"role": "user", "content": "x"}])

    expected = [without_names(item.to_dict()) for item in first.output]
    assert recorded(server, ai, again)[1:-1] == expected
    assert recorded(server, ai, bare)[:1] == expected[:1]


def test_a_reference_also_names_an_item_of_a_conversation(ai: Ai) -> None:
    conversation = ai.conversations.create(items=[{"role": "user", "content": "green tea"}]).id
    (item,) = items(ai, conversation)

    other = ai.conversations.create(items=[{"type": "item_reference", "id": item["id"]}]).id

    assert [without_names(one) for one in items(ai, other)] == [without_names(item)]


def test_a_reference_to_an_item_of_another_owner_is_refused(server: RunningServer, ai: Ai) -> None:
    with client_of(server.for_somebody_new()) as stranger:
        theirs = stranger.responses.create(model="default", input="a secret").output[0].id

    with pytest.raises(openai.BadRequestError) as refused:
        ai.responses.create(model="default", input=[{"type": "item_reference", "id": theirs}])

    assert (fault(refused.value)["param"], fault(refused.value)["code"]) == ("input[0].id", "item_not_found")


def test_a_call_of_another_server_is_kept_as_it_came(server: RunningServer, ai: Ai) -> None:
    foreign = {
        "type": "mcp_call",
        "id": "mcp_abc",
        "server_label": "deepwiki",
        "name": "ask",
        "arguments": '{"q": 123456789012345678901234567890}',
        "output": "an answer",
    }
    first = ai.responses.create(model="default", input=[foreign, {"role": "user", "content": "go on"}])

    assert recorded(server, ai, first)[0] == without_names(foreign)


def test_a_summary_can_be_sent_back(ai: Ai) -> None:
    first = ai.responses.create(
        model="default",
        input=[{"type": "compaction", "encrypted_content": "They like tea."}, {"role": "user", "content": "go on"}],
    )

    shown = [item.to_dict() for item in ai.responses.input_items.list(first.id, order="asc")]
    assert (shown[0]["type"], shown[0]["encrypted_content"]) == ("compaction", "They like tea.")


@pytest.mark.parametrize(
    "arguments",
    ['{"id": 123456789012345678901234567890}', '{"x": 0.1234567890123456789}', '{ "spaced" : [1,  2] }', "not json"],
)
def test_arguments_of_a_clients_tool_come_back_unchanged(ai: Ai, arguments: str) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": arguments}
    output = {"type": "function_call_output", "call_id": "c1", "output": "seen"}
    conversation = ai.conversations.create(items=[call, output]).id

    assert items(ai, conversation)[0]["arguments"] == arguments
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]
    ai.responses.create(
        model="scripted",
        input=[call, output, {"role": "user", "content": "hello"}],
        conversation=conversation,
        tools=tools,
    )
    assert [item["arguments"] for item in items(ai, conversation) if item["type"] == "function_call"] == [arguments] * 2


def test_the_scripted_agent_passes_large_numbers_on_to_a_clients_tool(ai: Ai) -> None:
    tool = {"type": "function", "name": "count", "parameters": {"type": "object", "properties": {}}}

    asked = ai.responses.create(model="scripted", input=f'tool count {{"n": {10**30}}}', tools=[tool])

    (call,) = asked.output
    assert call.arguments == f'{{"n": {10**30}}}'
