"""Conversations and their items through the official client."""

from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.databases import Place
from tests.server.agents import AGENTS
from tests.server.openai.openai_client import Ai, client_of, fault
from tests.server.running_server import RunningServer, run_server

# These tests are about code above the store, or about rules of its contract: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")


@pytest.fixture
def server(shared_server: RunningServer) -> RunningServer:
    return shared_server.for_somebody_new()


@pytest.fixture
def ai(server: RunningServer) -> Iterator[Ai]:
    with client_of(server) as client:
        yield client


def said(ai: Ai, conversation: str, **query: Any) -> list[dict[str, Any]]:
    return [item.to_dict() for item in ai.conversations.items.list(conversation, **query)]


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def assistant(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def texts(items: list[dict[str, Any]]) -> list[str]:
    return [item["content"][0]["text"] for item in items]


def test_a_conversation_is_made_read_changed_and_deleted(place: Place) -> None:
    with run_server(place, AGENTS) as server, client_of(server) as ai:
        made = ai.conversations.create(metadata={"topic": "tea"}, items=[user("hello")])
        assert made.id.startswith("conv_")
        assert (made.object, made.metadata) == ("conversation", {"topic": "tea"})
        assert ai.conversations.retrieve(made.id) == made

        changed = ai.conversations.update(made.id, metadata={"topic": "coffee", "cups": "2"})
        assert changed.metadata == {"topic": "coffee", "cups": "2"}
        assert ai.conversations.update(made.id, metadata=None).metadata == {}

        gone = ai.conversations.delete(made.id)
        assert (gone.id, gone.object, gone.deleted) == (made.id, "conversation.deleted", True)
        with pytest.raises(openai.NotFoundError):
            ai.conversations.retrieve(made.id)


def test_a_conversation_is_a_session_of_the_api(server: RunningServer, ai: Ai) -> None:
    conversation = ai.conversations.create(metadata={"topic": "tea"}, items=[user("hello")]).id
    with server.client() as client:
        session = client.get(f"/api/sessions/{conversation.replace('conv_', 'ses_')}").json()
    assert (session["metadata"], session["length"], session["preview"]) == ({"topic": "tea"}, 1, "hello")


def test_a_repeated_key_makes_one_conversation(ai: Ai) -> None:
    made = [ai.conversations.create(items=[user("hello")], extra_headers={"Idempotency-Key": "k"}).id for _ in range(2)]
    assert made[0] == made[1]
    assert len(said(ai, made[0])) == 1


def test_a_late_repetition_of_a_key_changes_nothing(ai: Ai) -> None:
    once: dict[str, Any] = {"metadata": {"topic": "tea"}, "extra_headers": {"Idempotency-Key": "k"}}
    made = ai.conversations.create(**once)
    ai.conversations.update(made.id, metadata={"topic": "coffee"})

    again = ai.conversations.create(**once)

    assert (again.id, again.metadata) == (made.id, {"topic": "coffee"})
    assert ai.conversations.retrieve(made.id).metadata == {"topic": "coffee"}


def test_more_than_one_thing_can_be_asked_to_be_included(ai: Ai) -> None:
    include: Any = ["message.output_text.logprobs", "file_search_call.results"]
    conversation = ai.conversations.create().id
    added = ai.conversations.items.create(conversation, items=[user("hello")], include=include).data[0]
    listed = ai.conversations.items.list(conversation, include=include).data[0]
    read = ai.conversations.items.retrieve(added.id, conversation_id=conversation, include=include)
    assert added.id == listed.id == read.id

    response = ai.responses.create(model="default", input="hello", include=include).id
    assert ai.responses.retrieve(response, include=include).id == response
    assert ai.responses.input_items.list(response, include=include).data


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_items_are_paged_without_gap_or_repetition(ai: Ai, order: Any, limit: int) -> None:
    conversation = ai.conversations.create().id
    words = [f"word {number}" for number in range(130)]
    for at in range(0, 130, 20):
        ai.conversations.items.create(conversation, items=[user(word) for word in words[at : at + 20]])

    found = texts(said(ai, conversation, order=order, limit=limit))

    assert found == (words if order == "asc" else words[::-1])


def test_the_newest_twenty_are_shown_unless_asked_otherwise(ai: Ai) -> None:
    conversation = ai.conversations.create().id
    for at in (0, 20):
        words = [user(str(number)) for number in range(at, at + 20)]
        ai.conversations.items.create(conversation, items=words)

    page = ai.conversations.items.list(conversation)

    assert texts([item.to_dict() for item in page.data]) == [str(number) for number in range(39, 19, -1)]
    assert page.has_more
    assert (page.first_id, page.last_id) == (page.data[0].id, page.data[-1].id)


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": 101}, {"order": "up"}, {"sparkle": 1}])
def test_invalid_paging_parameters_are_rejected(ai: Ai, query: dict[str, Any]) -> None:
    conversation = ai.conversations.create().id
    with pytest.raises(openai.BadRequestError):
        ai.conversations.items.list(conversation, extra_query=query)
    with pytest.raises(openai.NotFoundError):
        ai.conversations.items.list(conversation, after="msg_01m7j9vf4jf4msapk2gvh096me")


# Items that agent frameworks store. Each is returned unchanged, under one of our ids.
KEPT: list[dict[str, Any]] = [
    user("plain words"),
    assistant("an answer"),
    {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
    },
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be kind"}]},
    {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "be kind"}]},
    {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "data:,x", "detail": "auto"}]},
    {"type": "message", "role": "assistant", "phase": "commentary", "content": [{"type": "output_text", "text": "hm"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
    {"type": "reasoning", "summary": [], "encrypted_content": "zzz"},
    {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "tea"}},
    {"type": "function_call_output", "call_id": "lost", "output": "a result whose call is gone"},
]
CALLS: list[dict[str, Any]] = [
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at":"tea"}'},
    {"type": "function_call", "call_id": "c2", "name": "look", "arguments": '{ "spaced": true }'},
    {"type": "function_call", "call_id": "c3", "name": "look", "arguments": "not json"},
    {"type": "function_call_output", "call_id": "c1", "output": "green"},
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "x"}]},
    {"type": "function_call_output", "call_id": "c3", "output": ""},
]


def core(item: dict[str, Any]) -> dict[str, Any]:
    """An item without its id and its default values."""
    found = {name: value for name, value in item.items() if name not in ("id", "status")}
    if isinstance(found.get("content"), list):
        found["content"] = [
            {name: value for name, value in part.items() if value not in ([], None)} for part in found["content"]
        ]
    return found


@pytest.mark.parametrize("item", KEPT, ids=lambda item: f"{item['type']}-{item.get('role', '')}")
def test_every_kind_of_item_comes_back_as_it_was(ai: Ai, item: dict[str, Any]) -> None:
    conversation = ai.conversations.create().id

    made = ai.conversations.items.create(conversation, items=[item])

    assert [core(one) for one in said(ai, conversation)] == [core(item)]
    assert [one.to_dict() for one in made.data] == said(ai, conversation)
    name = said(ai, conversation)[0]["id"]
    assert ai.conversations.items.retrieve(name, conversation_id=conversation).to_dict() == said(ai, conversation)[0]


def test_calls_and_results_come_back_in_order_and_agents_can_read_them(ai: Ai) -> None:
    conversation = ai.conversations.create(items=[user("look"), *CALLS]).id

    assert [core(one) for one in said(ai, conversation, order="asc")[1:]] == [core(one) for one in CALLS]
    answer = ai.responses.create(model="scripted", conversation=conversation, input=None)
    assert (
        answer.output_text == "You gave me: green\nYou gave me: [{'type': 'input_text', 'text': 'x'}]\nYou gave me: \n"
    )


def test_results_may_come_later_than_their_calls(ai: Ai) -> None:
    conversation = ai.conversations.create(items=CALLS[:3]).id
    for result in CALLS[3:]:
        ai.conversations.items.create(conversation, items=[result])

    assert [core(one) for one in said(ai, conversation, order="asc")] == [core(one) for one in CALLS]


@settings(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_items_are_deleted_one_by_one_and_the_others_stay(ai: Ai, data: st.DataObject) -> None:
    items = [user("a"), *CALLS, assistant("b"), user("c"), assistant("d"), *KEPT[8:10]]
    conversation = ai.conversations.create(items=items).id
    left = [core(item) for item in items]
    for _ in range(data.draw(st.integers(1, len(items)))):
        place = data.draw(st.integers(0, len(left) - 1))
        here = said(ai, conversation, order="asc")
        gone = ai.conversations.items.delete(here[place]["id"], conversation_id=conversation)
        assert gone.id == conversation
        left.pop(place)
        assert [core(one) for one in said(ai, conversation, order="asc")] == left
        with pytest.raises(openai.NotFoundError):
            ai.conversations.items.retrieve(here[place]["id"], conversation_id=conversation)


def test_deleting_an_item_of_an_answer_deletes_its_related_items(place: Place) -> None:
    with run_server(place, AGENTS) as server, client_of(server) as ai:
        conversation = ai.conversations.create().id
        ai.responses.create(model="scripted", input="think of tea\ncalc 6*7", conversation=conversation)
        kinds = ["message", "reasoning", "message", "mcp_call", "message"]
        assert [item["type"] for item in said(ai, conversation, order="asc")] == kinds

        for place_of in (3, 1, 0, 1, 0):
            item = said(ai, conversation, order="asc")[place_of]
            ai.conversations.items.delete(item["id"], conversation_id=conversation)
            kinds.pop(place_of)
            assert [item["type"] for item in said(ai, conversation, order="asc")] == kinds


def test_nothing_is_deleted_while_an_answer_is_being_given(ai: Ai) -> None:
    conversation = ai.conversations.create(items=[user("a")]).id
    item = said(ai, conversation)[0]["id"]
    running = ai.responses.create(model="patient", input="wait", conversation=conversation, background=True)

    with pytest.raises(openai.ConflictError):
        ai.conversations.items.delete(item, conversation_id=conversation)

    ai.responses.cancel(running.id)


def test_pages_never_separate_a_call_from_its_result(ai: Ai) -> None:
    conversation = ai.conversations.create().id
    for _ in range(3):
        ai.responses.create(model="scripted", input="\n".join(["calc 1+1"] * 30), conversation=conversation)
    whole = said(ai, conversation, order="asc", limit=100)
    calls = [item for item in whole if item["type"] == "mcp_call"]
    assert [call["output"] for call in calls] == ["2"] * 90

    for limit in (2, 13):
        assert said(ai, conversation, order="asc", limit=limit) == whole
        assert said(ai, conversation, order="desc", limit=limit) == whole[::-1]


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([{"type": "message", "role": "user"}], "items[0].content"),
        ([user("a"), {"type": "function_call", "name": "x"}], "items[1].arguments"),
        ([{"type": "message", "role": "user", "content": ["x"]}], "items[0].content"),
        ([{"content": "x"}], "items[0]"),
        ([user("x")] * 21, "items"),
    ],
)
def test_invalid_items_are_rejected_and_leave_nothing(
    server: RunningServer, ai: Ai, items: list[Any], param: str
) -> None:
    conversation = ai.conversations.create().id
    asks: list[Callable[[], object]] = [
        lambda: ai.conversations.items.create(conversation, items=items),
        lambda: ai.conversations.create(items=items),
    ]
    for ask in asks:
        with pytest.raises(openai.BadRequestError) as refused:
            ask()
        assert fault(refused.value)["param"] == param
    assert said(ai, conversation) == []
    with server.client() as client:
        assert len(client.get("/api/sessions").json()["sessions"]) == 1
