"""Compaction of a client's own history: POST /v1/responses/compact, with the official client."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest

from backstay import Text
from backstay.agents.port import AgentTurn
from backstay.model.content import Body
from tests.server.agents import AGENTS
from tests.server.openai.openai_client import Ai, client_of, fault
from tests.server.running_server import RunningServer, run_server

# These tests are about code above the store, or about rules of its contract: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")

LONG = "Tea is picked, withered, rolled and dried before anybody drinks it. " * 8


async def reader(turn: AgentTurn) -> AsyncIterator[Body]:
    """Answers with the roles and the first words of everything that it reads."""
    yield Text("|".join(f"{message.role}:{message.text[:12]}" for message in turn.messages))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with run_server(tmp_path_factory.mktemp("compaction") / "chat.db", {**AGENTS, "reader": reader}) as server:
        yield server


@pytest.fixture
def ai(server: RunningServer) -> Iterator[Ai]:
    with client_of(server.for_somebody_new()) as ai:
        yield ai


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def kinds(compacted: Any) -> list[str]:
    return [item.type for item in compacted.output]


def replayed(compacted: Any) -> list[dict[str, Any]]:
    """The output as clients send it again."""
    return [item.model_dump(exclude_unset=True, warnings=False) for item in compacted.output]


def sessions(server: RunningServer) -> list[Any]:
    with server.client() as client:
        found: list[Any] = client.get("/api/sessions").json()["sessions"]
    return found


def test_a_history_becomes_a_summary_and_the_last_exchange(server: RunningServer, ai: Ai) -> None:
    history = [user(LONG), answer(LONG), user("and coffee?"), answer("roasted")]

    compacted = ai.responses.compact(model="default", input=history)

    assert (compacted.object, compacted.id[:5]) == ("response.compaction", "resp_")
    assert kinds(compacted) == ["compaction", "message", "message"]
    summary, asked, said = compacted.output
    assert "Tea is picked" in summary.encrypted_content
    assert len(summary.encrypted_content) < len(LONG)
    assert (asked.content[0].text, said.content[0].text) == ("and coffee?", "roasted")
    assert compacted.usage.total_tokens == 0  # the built-in summariser uses no model
    assert sessions(server) == []


def test_an_agent_reads_the_compacted_history_as_input(ai: Ai) -> None:
    compacted = ai.responses.compact(model="reader", input=[user(LONG), answer(LONG), user("x"), answer("y")])

    followed = ai.responses.create(model="reader", input=[*replayed(compacted), user("z")])

    roles = [one.partition(":")[0] for one in followed.output_text.split("|")]
    assert roles == ["summary", "user", "assistant", "user"]
    assert followed.output_text.endswith("user:x|assistant:y|user:z")


def test_a_compacted_history_can_be_compacted_again(ai: Ai) -> None:
    once = ai.responses.compact(model="default", input=[user(LONG), answer(LONG), user(LONG), answer(LONG)])
    twice = ai.responses.compact(model="default", input=[*replayed(once), user("x"), answer("y")])

    assert kinds(twice) == ["compaction", "message", "message"]
    assert "Tea is picked" in twice.output[0].encrypted_content


def test_the_history_of_a_response_is_compacted_and_stays_as_it_is(server: RunningServer, ai: Ai) -> None:
    first = ai.responses.create(model="default", input=LONG)
    second = ai.responses.create(model="default", input="and coffee?", previous_response_id=first.id)
    before = sessions(server)

    compacted = ai.responses.compact(model="default", previous_response_id=second.id)
    earlier = ai.responses.compact(model="default", previous_response_id=first.id, input=[user("and cocoa?")])

    assert kinds(compacted) == ["compaction", "message", "message"]
    assert compacted.output[1].content[0].text == "and coffee?"
    assert kinds(earlier) == ["compaction", "message"]
    assert earlier.output[1].content[0].text == "and cocoa?"
    assert sessions(server) == before
    assert ai.responses.retrieve(second.id) == second


def test_calls_of_client_tools_stay_with_their_outputs(ai: Ai) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "green"}

    compacted = ai.responses.compact(model="default", input=[user(LONG), answer(LONG), user("look"), call, output])

    assert kinds(compacted) == ["compaction", "message", "function_call", "function_call_output"]


def test_leading_instructions_stay_word_by_word(ai: Ai) -> None:
    rule = {"role": "developer", "content": "Never mention milk."}

    compacted = ai.responses.compact(model="default", input=[rule, user(LONG), answer(LONG), user("x"), answer("y")])

    assert kinds(compacted) == ["message", "compaction", "message", "message"]
    assert (compacted.output[0].role, compacted.output[0].content[0].text) == ("developer", "Never mention milk.")
    assert "milk" not in compacted.output[1].encrypted_content


@pytest.mark.parametrize("history", [[user("hi"), answer("ho"), user("x")], [user(LONG)]], ids=["short", "single"])
def test_a_history_that_cannot_become_shorter_is_returned_unchanged(
    server: RunningServer, ai: Ai, history: list[dict[str, Any]]
) -> None:
    compacted = ai.responses.compact(model="default", input=history)

    assert [item.content[0].text for item in compacted.output] == [item["content"] for item in history]
    assert sessions(server) == []


REJECTED: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "nothing": ({}, "input", "invalid_value"),
    "only instructions": ({"input": [{"role": "system", "content": "x"}]}, "input", "invalid_value"),
    "empty text": ({"input": " "}, "input", "invalid_value"),
    "an unknown item": ({"input": [{"type": "web_search_call"}]}, "input[0]", "unsupported_content"),
    "instructions": ({"input": "x", "instructions": "Be brief."}, "instructions", "unsupported_parameter"),
    "a tier": ({"input": "x", "service_tier": "flex"}, "service_tier", "unsupported_parameter"),
    "an unknown response": (
        {"previous_response_id": "resp_" + "0" * 26},
        "previous_response_id",
        "previous_response_not_found",
    ),
    "an unknown parameter": ({"input": "x", "extra_body": {"depth": 1}}, "depth", "unknown_parameter"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_an_invalid_request_is_rejected_and_leaves_nothing(server: RunningServer, ai: Ai, name: str) -> None:
    given, param, code = REJECTED[name]

    with pytest.raises(openai.BadRequestError) as refused:
        ai.responses.compact(model="default", **given)

    told = fault(refused.value)
    assert (told["param"], told["code"], told["type"]) == (param, code, "invalid_request_error")
    assert sessions(server) == []
