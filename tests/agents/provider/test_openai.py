"""The OpenAI-compatible agent with a correct provider."""

import asyncio
import subprocess
import sys

import pytest

from backstay.agents.port import Agent
from backstay.agents.provider.openai_compatible import OpenAICompatible
from backstay.errors import ConfigError
from backstay.model.content import Body, Custom, Text, Thought, ToolCall, ToolResult, Usage
from backstay.model.message import NewMessage, assistant, summary, tool, user
from tests.agents.fake_turn import LooseTurn, output_of
from tests.agents.provider.fake_provider import (
    DONE,
    FakeProvider,
    answers,
    chunk,
    finish,
    says,
    stalls_after,
    tally,
    words,
)
from tests.agents.provider.provider_turn import KEY, ask

WHERE = "http://127.0.0.1:9/v1"


def sent_for(*history: NewMessage, content: str = "and now?", system: str | None = None) -> list[object]:
    """The messages that the provider is sent for this history."""
    result = ask(answers("so"), turn=LooseTurn(content, history=history), system=system)
    [messages] = result.sent
    return list(messages)


def test_it_is_an_agent() -> None:
    assert isinstance(OpenAICompatible(WHERE, "tiny"), Agent)


def test_text_is_streamed_as_it_arrives() -> None:
    result = ask(says(words("Hel"), words("lo"), finish(), DONE))

    assert result.bodies == [Text("Hel"), Text("lo")]
    assert result.error is None


def test_the_model_is_asked_for_a_stream_with_its_usage_and_with_the_key() -> None:
    [request] = ask(answers("hi"), turn=LooseTurn("hello"), options={"temperature": 0}).requests

    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
    }


def test_without_a_key_none_is_sent() -> None:
    [request] = ask(answers("hi"), api_key=None).requests

    assert "authorization" not in request.headers


def test_a_base_url_may_end_in_a_slash() -> None:
    async def asked() -> str:
        async with FakeProvider(answers("hi")) as provider:
            agent = OpenAICompatible(provider.base_url + "/", "tiny")
            await output_of(agent, LooseTurn())
            await agent.aclose()
            return provider.requests[0].path

    assert asyncio.run(asked()) == "/v1/chat/completions"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_a_thought(field: str) -> None:
    result = ask(says(chunk({field: "well"}), words("yes"), finish(), DONE))

    assert result.bodies == [Thought("well"), Text("yes")]


def test_a_refusal_is_streamed_like_any_text() -> None:
    assert ask(says(chunk({"refusal": "I will not."}), finish(), DONE)).text == "I will not."


def test_usage_is_reported_with_cached_tokens_and_the_model_that_answered() -> None:
    counts = tally(
        prompt_tokens=11,
        completion_tokens=7,
        prompt_tokens_details={"cached_tokens": 5},
        completion_tokens_details={"reasoning_tokens": 3},
    )

    result = ask(says(words("hi"), finish(), counts, DONE))

    assert result.bodies[-1] == Usage(11, 7, 5, model="tiny-1", reasoning_tokens=3)


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_truncated_answer_is_marked(reason: str) -> None:
    assert ask(says(words("Once upon a"), finish(reason), DONE)).bodies == [
        Text("Once upon a"),
        Custom("answer_cut", {"reason": reason}),
    ]


def test_an_empty_answer_completes() -> None:
    result = ask(says(finish(), DONE))

    assert (result.bodies, result.error) == ([], None)


def test_a_cancelled_turn_stops_between_two_chunks() -> None:
    turn = LooseTurn()

    async def cancelled() -> list[Body]:
        async with FakeProvider(stalls_after(words("one "), words("two "), words("three"))) as provider:
            agent = OpenAICompatible(provider.base_url, "tiny")

            def cancel(_: Body) -> None:
                turn.cancelled = True

            bodies = await output_of(agent, turn, cancel)
            await agent.aclose()
            return bodies

    assert asyncio.run(cancelled()) == [Text("one ")]


@pytest.mark.parametrize("hard", [True, False], ids=["the task is cancelled", "nobody listens any more"])
def test_an_answer_cut_off_from_our_side_leaves_the_agent_ready_for_the_next(hard: bool) -> None:
    async def first_word(agent: OpenAICompatible, said: asyncio.Event) -> None:
        async for _ in agent.stream(LooseTurn()):
            said.set()
            if not hard:
                return

    async def asked() -> list[Body]:
        async with FakeProvider(stalls_after(words("one ")), answers("two")) as provider:
            agent, said = OpenAICompatible(provider.base_url, "tiny"), asyncio.Event()
            listening = asyncio.create_task(first_word(agent, said))
            await said.wait()
            if hard:
                listening.cancel()
            await asyncio.wait([listening])
            bodies = await output_of(agent, LooseTurn())
            await agent.aclose()
            return bodies

    assert asyncio.run(asked()) == [Text("two")]


def test_the_other_agents_do_not_load_an_http_client() -> None:
    act = "import sys, backstay.agents.scripted.scripted_agent; print('httpx2' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", act], capture_output=True, text=True, check=True).stdout == "False\n"


def test_one_agent_answers_many_turns_at_once() -> None:
    async def asked() -> list[list[Body]]:
        async with FakeProvider(*[answers("hi")] * 20) as provider:
            agent = OpenAICompatible(provider.base_url, "tiny")
            turns = await asyncio.gather(*[output_of(agent, LooseTurn()) for _ in range(20)])
            await agent.aclose()
            return turns

    assert asyncio.run(asked()) == [[Text("hi")]] * 20


def test_steering_that_came_during_the_answer_is_answered_too() -> None:
    turn = LooseTurn("a poem", steering=["a short one"])

    result = ask(answers("Roses…"), answers("Rose."), turn=turn)

    assert result.text == "Roses…Rose."
    assert result.sent[1] == [
        {"role": "user", "content": "a poem"},
        {"role": "assistant", "content": "Roses…"},
        {"role": "user", "content": "a short one"},
    ]


def test_steering_is_left_for_the_next_turn_when_the_steps_are_used_up() -> None:
    turn = LooseTurn("a poem", steering=["a short one"])

    result = ask(answers("Roses…"), turn=turn, step_limit=1)

    assert (result.text, result.error) == ("Roses…", None)
    assert asyncio.run(turn.steering()) != ()


def test_the_system_text_and_a_summary_come_first_as_one_message() -> None:
    messages = sent_for(summary("They met."), user("hi"), assistant("hello"), system="Be kind.")

    assert messages == [
        {"role": "system", "content": "Be kind.\n\nSummary of the conversation so far:\nThey met."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "and now?"},
    ]


def test_thoughts_and_custom_parts_are_not_sent() -> None:
    messages = sent_for(user("hi"), assistant([Thought("hm"), Text("hello"), Custom("mood", "good")]))

    assert messages[1] == {"role": "assistant", "content": "hello"}


def test_messages_of_a_person_without_an_answer_between_are_sent_as_one() -> None:
    assert sent_for(user("hello?"), assistant([Thought("only thought")])) == [
        {"role": "user", "content": "hello?\n\nand now?"}
    ]


def test_calls_are_sent_directly_before_their_results() -> None:
    messages = sent_for(
        user("hi"),
        assistant([Text("Let me see."), ToolCall("a", "clock"), ToolCall("b", "add", {"x": 1})]),
        tool([ToolResult("b", {"sum": 2}), ToolResult("a", "broken", error=True)]),
        assistant("It is two."),
    )

    assert messages[1:-1] == [
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "clock", "arguments": "{}"}},
                {"id": "b", "type": "function", "function": {"name": "add", "arguments": '{"x":1}'}},
            ],
        },
        {"role": "tool", "content": '{"sum":2}', "tool_call_id": "b"},
        {"role": "tool", "content": "Error: broken", "tool_call_id": "a"},
        {"role": "assistant", "content": "It is two."},
    ]


def test_a_message_that_holds_calls_and_results_is_sent_as_several() -> None:
    first, second = ToolCall("a", "clock"), ToolCall("b", "clock")

    messages = sent_for(
        user("hi"), assistant([first, ToolResult("a", "noon"), Text("Again."), second, ToolResult("b", "one")])
    )

    assert [message["role"] for message in messages if isinstance(message, dict)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "user",
    ]


def test_text_between_two_results_is_not_sent_between_a_call_and_its_result() -> None:
    calls_ = [ToolCall("a", "clock"), ToolCall("b", "clock")]

    messages = sent_for(
        user("hi"), assistant([*calls_, ToolResult("a", "noon"), Text("Noon.")]), tool(ToolResult("b", "one"))
    )

    assert [message["role"] for message in messages if isinstance(message, dict)] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
    ]


def test_a_call_with_an_invalid_name_is_sent_under_a_valid_one() -> None:
    messages = sent_for(
        user("hi"),
        assistant([ToolCall("a", "files.read all"), ToolCall("b", ""), ToolCall("c", "x" * 99, "no object")]),
        tool([ToolResult("a", 1), ToolResult("b", 2), ToolResult("c", 3)]),
    )

    called = [call["function"] for m in messages if isinstance(m, dict) for call in m.get("tool_calls", ())]
    assert [function["name"] for function in called] == ["files_read_all", "unnamed", "x" * 64]
    assert called[2]["arguments"] == '{"arguments":"no object"}'


def test_a_call_id_that_two_turns_used_is_sent_as_two() -> None:
    turn_ = [assistant(ToolCall("call-1", "clock")), tool(ToolResult("call-1", "noon")), assistant("Noon.")]

    messages = sent_for(user("when?"), *turn_, user("and now?"), *turn_, user("and?"), *turn_)

    called = [m["tool_calls"][0]["id"] for m in messages if isinstance(m, dict) and "tool_calls" in m]
    answered = [m["tool_call_id"] for m in messages if isinstance(m, dict) and m["role"] == "tool"]
    assert called == answered
    assert len(set(called)) == 3


def test_an_invalid_base_url_is_rejected_and_not_quoted() -> None:
    for url in ("api.example.com/v1", "ftp://x/v1", "http://", "http://me:hunter2@x/v1", "http://x/v1?key=hunter2"):
        with pytest.raises(ConfigError) as refused:
            OpenAICompatible(url, "tiny")
        assert "hunter2" not in str(refused.value)


def test_an_invalid_key_is_rejected_and_not_quoted() -> None:
    for key in ("", "secret\n", "se cret", "secrét"):
        with pytest.raises(ConfigError) as refused:
            OpenAICompatible(WHERE, "tiny", key)
        assert not key or key.strip() not in str(refused.value)


def test_a_model_that_may_not_be_asked_at_all_is_refused() -> None:
    with pytest.raises(ConfigError):
        OpenAICompatible(WHERE, "tiny", step_limit=0)


def test_the_key_is_not_in_the_agents_representation() -> None:
    agent = OpenAICompatible(WHERE, "tiny", KEY)

    assert KEY not in repr(agent)
    assert "127.0.0.1:9" in repr(agent)


def test_the_proxy_of_the_environment_is_not_asked_for_a_model_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")

    assert ask(answers("hi")).text == "hi"
