"""The OpenAI-compatible agent on the runtime: a session survives faults of its provider, and keeps the output."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import backstay
from backstay import App, Text, Timing, ToolCall, ToolResult
from backstay.agents.provider.openai_compatible import OpenAICompatible
from backstay.agents.provider.transport.retry_policy import ProviderBackoff
from backstay.agents.tools import Tool
from backstay.errors import AgentTimedOut
from backstay.model.event import ToolCalled
from backstay.model.turn import Cancelled, Completed, Failed
from backstay.runtime.session_handle import Session
from tests.agents.provider.fake_provider import (
    DONE,
    FakeProvider,
    Json,
    Play,
    Reply,
    answers,
    breaks_after,
    calls,
    finish,
    hangs_up,
    refuses,
    says,
    stalls_after,
    tally,
    wants,
    words,
)
from tests.runtime.controlled_agents import events_of_turn, first_words, let_time_pass, roles_and_texts

# These tests are about agents and their output in the runtime: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")

KEY = "sk-the-secret-of-the-house-0123456789"
OVERFLOW = {"error": {"message": "This model's maximum context length is 8 tokens.", "code": "context_length_exceeded"}}
Tools = Sequence[Callable[..., Json] | Tool]


class Scene(NamedTuple):
    """A session whose agent asks the fake provider."""

    app: App
    session: Session
    provider: FakeProvider

    def asked(self, number: int = -1) -> list[dict[str, Any]]:
        """The messages of a request to the provider, the last one by default."""
        return list(self.provider.requests[number].body["messages"])


@asynccontextmanager
async def scene(path: Path, *plays: Play, tools: Tools = (), timing: Timing | None = None) -> AsyncIterator[Scene]:
    """The scene, without the wake-up inside the process, and with retries without pauses."""
    async with FakeProvider(*plays) as provider:
        agent = OpenAICompatible(
            provider.base_url, "tiny", KEY, tools=tools, backoff=ProviderBackoff(retries=2, base=0.0), read_timeout=60.0
        )
        async with backstay.open(path, agent=agent, notify=False, timing=timing) as app:
            yield Scene(app, await app.session(), provider)


def valid(messages: Sequence[dict[str, Any]]) -> None:
    """Check the rule of every provider: each call is answered once, directly after the message that made it."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
        else:
            assert waiting == []
        waiting += [call["id"] for call in message.get("tool_calls", ())]
    assert waiting == []
    assert messages[-1]["role"] == "user"


# --- a working provider ---------------------------------------------------------------------------------------------


async def test_output_is_stored_and_visible_while_the_model_streams(path: Path) -> None:
    seen = asyncio.Event()

    async def waits_in_between(reply: Reply) -> None:
        await reply.stream()
        await reply.send(words("one "))
        await seen.wait()
        await reply.send(words("two") + finish() + tally(prompt_tokens=7, completion_tokens=2) + DONE)
        await reply.end()

    async with scene(path, waits_in_between) as here:
        turn = await here.session.send("hello")
        assert await first_words(turn) == "one "
        seen.set()
        assert await turn.outcome() == Completed()
        assert roles_and_texts(await here.session.messages()) == [("user", "hello"), ("assistant", "one two")]
        usage = (await turn.read()).usage
        assert (usage.input_tokens, usage.output_tokens, usage.model) == (7, 2, "tiny-1")


async def test_a_tool_runs_through_the_ledger_and_its_result_reaches_the_model(path: Path) -> None:
    keys: list[str] = []

    def pay(amount: int, key: str) -> str:
        """Pay."""
        keys.append(key)
        return f"paid {amount}"

    plays = (calls(wants(0, "a", "pay", '{"amount": 5}')), answers("done"))
    async with scene(path, *plays, tools=[pay]) as here:
        turn = await here.session.send("pay 5")
        assert await turn.outcome() == Completed()
        (line,) = await turn.calls()
        assert (line.name, line.effect, [line.key]) == ("pay", "returned", keys)
        parts = [part for message in await here.session.messages() for part in message.parts]
        assert parts == [
            Text("pay 5"),
            ToolCall("a", "pay", {"amount": 5}),
            ToolResult("a", "paid 5"),
            Text("done"),
        ]
        assert here.asked()[-1] == {"role": "tool", "content": "paid 5", "tool_call_id": "a"}


async def test_parallel_calls_are_all_in_the_ledger_first_and_each_result_finds_its_call(
    path: Path,
) -> None:
    inside = asyncio.Barrier(3)
    keys: dict[str, str] = {}

    async def look(at: str, key: str) -> str:
        """Look at something, beside two others."""
        keys[at] = key
        await inside.wait()
        return f"saw {at}"

    wanted = [wants(place, at, "look", f'{{"at": "{at}"}}') for place, at in enumerate("abc")]
    async with scene(path, calls(*wanted), answers("done"), tools=[look]) as here:
        turn = await here.session.send("look")
        events = [event.body for event in await events_of_turn(turn)]
        called = [body for body in events if isinstance(body, ToolCalled)]
        assert [body.call.arguments for body in called] == [{"at": "a"}, {"at": "b"}, {"at": "c"}]
        assert [body.key for body in called] == [keys["a"], keys["b"], keys["c"]]
        assert [(line.key, line.effect) for line in await turn.calls()] == [(keys[at], "returned") for at in "abc"]
        parts = [part for message in await here.session.messages() for part in message.parts]
        results = {part.id: part.output for part in parts if isinstance(part, ToolResult)}
        assert results == {body.call.id: f"saw {at}" for body, at in zip(called, "abc", strict=True)}
        assert [(m["tool_call_id"], m["content"]) for m in here.asked()[-3:]] == [
            ("a", "saw a"),
            ("b", "saw b"),
            ("c", "saw c"),
        ]


async def test_a_tool_error_is_in_the_ledger_and_the_model_continues(path: Path) -> None:
    def pay(amount: int) -> str:
        """Pay, in vain."""
        raise RuntimeError(f"no {amount} left")

    plays = (calls(wants(0, "a", "pay", '{"amount": 5}')), answers("I could not pay"))
    async with scene(path, *plays, tools=[pay]) as here:
        turn = await here.session.send("pay 5")
        assert await turn.outcome() == Completed()
        assert [line.effect for line in await turn.calls()] == ["returned"]
        assert "Error: it raised RuntimeError (turn trn_" in here.asked()[-1]["content"]
        assert "no 5 left" not in repr(here.asked())
        assert roles_and_texts(await here.session.messages())[-1] == ("assistant", "I could not pay")


async def test_steering_reaches_the_model_between_two_steps_of_a_running_turn(path: Path) -> None:
    reached, free = asyncio.Event(), asyncio.Event()

    async def look() -> str:
        """Look for a while."""
        reached.set()
        await free.wait()
        return "nothing"

    async with scene(path, calls(wants(0, "a", "look", "{}")), answers("as you like"), tools=[look]) as here:
        turn = await here.session.send("look")
        await reached.wait()
        steering = await here.session.steer("look elsewhere")
        free.set()
        assert await turn.outcome() == await steering.outcome() == Completed()
        assert here.asked()[-1] == {"role": "user", "content": "look elsewhere"}
        assert (await steering.read()).taken_by == turn.id


# --- a faulty provider ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [refuses(429), refuses(503), hangs_up], ids=["429", "503", "hangs up"])
async def test_a_retried_fault_before_the_first_output_leaves_no_trace_in_the_session(path: Path, fault: Play) -> None:
    async with scene(path, fault, fault, answers("hello")) as here:
        turn = await here.session.send("hi")
        assert await turn.outcome() == Completed()
        assert roles_and_texts(await here.session.messages()) == [("user", "hi"), ("assistant", "hello")]
        assert len(here.provider.requests) == 3


async def test_a_provider_that_stays_busy_fails_the_turn_and_the_next_turn_asks_it_again(path: Path) -> None:
    async with scene(path, *[refuses(429)] * 3, answers("hello")) as here:
        failed = await (await here.session.send("hi")).outcome()
        assert isinstance(failed, Failed)
        assert "429" in failed.reason
        assert await (await here.session.send("again")).outcome() == Completed()
        assert here.asked() == [{"role": "user", "content": "hi\n\nagain"}]


async def test_an_answer_that_breaks_off_is_kept_and_marked_and_not_requested_again(path: Path) -> None:
    async with scene(path, breaks_after(words("The answer is for")), answers("forty-two")) as here:
        outcome = await (await here.session.send("what is it?")).outcome()
        assert isinstance(outcome, Failed)
        assert "in the middle of the answer" in outcome.reason
        said = (await here.session.messages())[-1]
        assert (said.role, said.text, said.partial) == ("assistant", "The answer is for", True)
        assert len(here.provider.requests) == 1

        assert await (await here.session.send("go on")).outcome() == Completed()
        assert [message["content"] for message in here.asked()] == ["what is it?", "The answer is for", "go on"]
        assert roles_and_texts(await here.session.messages())[-1] == ("assistant", "forty-two")


async def test_a_history_that_is_too_long_for_the_model_fails_the_turn_with_that_reason(path: Path) -> None:
    async with scene(path, refuses(400, OVERFLOW), answers("short enough")) as here:
        outcome = await (await here.session.send("very long")).outcome()
        assert isinstance(outcome, Failed)
        assert "maximum context length" in outcome.reason
        assert len(here.provider.requests) == 1
        await here.session.undo()
        assert await (await here.session.send("short")).outcome() == Completed()
        assert here.asked() == [{"role": "user", "content": "short"}]


async def test_a_stalled_model_is_ended_by_the_silence_timeout_and_keeps_its_output(path: Path) -> None:
    async with scene(path, stalls_after(words("wait ")), timing=Timing(silence_timeout=30.0)) as here:
        turn = await here.session.send("hi")
        await first_words(turn)
        let_time_pass(30.0)
        outcome = await turn.outcome()
        assert outcome == Failed("the agent sent nothing for 30 s", code="agent_timed_out", hint=AgentTimedOut.hint)
        assert roles_and_texts(await here.session.messages())[-1] == ("assistant", "wait ")


async def test_cancelling_a_turn_closes_the_provider_connection_and_keeps_output(path: Path) -> None:
    gone = asyncio.Event()

    async def speaks_until_nobody_listens(reply: Reply) -> None:
        await reply.stream()
        try:
            while True:
                await reply.send(words("on and "))
                await asyncio.sleep(0)
        except ConnectionError:
            gone.set()
            raise

    async with scene(path, speaks_until_nobody_listens, answers("yes?")) as here:
        turn = await here.session.send("talk")
        await first_words(turn)
        assert isinstance(await turn.cancel(), Cancelled)
        await gone.wait()
        said = (await here.session.messages())[-1]
        assert said.text.startswith("on and ")
        assert said.partial
        assert await (await here.session.send("stop")).outcome() == Completed()


async def test_after_a_cancelled_call_the_model_learns_that_it_may_have_run(path: Path) -> None:
    inside = asyncio.Event()
    paid: list[int] = []

    async def pay(amount: int) -> str:
        """Pay, and never say so."""
        paid.append(amount)
        inside.set()
        await asyncio.Event().wait()
        return "never"

    plays = (calls(wants(0, "a", "pay", '{"amount": 5}')), answers("I do not know whether I paid"))
    async with scene(path, *plays, tools=[pay]) as here:
        turn = await here.session.send("pay 5")
        await inside.wait()
        await turn.cancel()
        assert await (await here.session.send("did you?")).outcome() == Completed()
        asked = here.asked()
        valid(asked)
        assert [message["role"] for message in asked] == ["user", "assistant", "tool", "user"]
        assert "this call may or may not have run" in asked[2]["content"]
        assert paid == [5]


@pytest.mark.parametrize(
    "evil",
    [
        breaks_after(words("so")),
        calls(wants(0, "a", "pay", "{not json")),
        calls(wants(0, "a", "steal", "{}")),
        calls(wants(0, "a", "pay", '{"amount": "much"}'), wants(1, "a", "pay", '{"amount": 1}')),
        calls(wants(0, None, None, None)),
        breaks_after(words("so "), wants(0, "a", "pay", '{"amo')),
        says(words("?").replace(b"?", b"\\ud83d") + finish() + DONE),
        says(b"data: {nonsense\n\n"),
        says(words("x" * 2_000_000), finish(), DONE),
        refuses(500, "<html>"),
    ],
    ids=[
        "drops",
        "bad arguments",
        "no such tool",
        "twins",
        "nameless",
        "half a call",
        "surrogate",
        "lies",
        "huge",
        "500",
    ],
)
async def test_after_any_provider_fault_the_next_request_is_valid(path: Path, evil: Play) -> None:
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    # The fault may be retried, or need an answer to its calls, before the turn ends.
    async with scene(path, evil, *[answers("well")] * 4, tools=[pay]) as here:
        first = await (await here.session.send("first")).outcome()
        assert isinstance(first, Completed | Failed)
        assert await (await here.session.send("second")).outcome() == Completed()
        valid(here.asked())
        assert roles_and_texts(await here.session.messages())[-2:] == [("user", "second"), ("assistant", "well")]


async def test_the_key_is_in_no_file_of_the_store_and_in_no_reason(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"

    refusal = {"error": {"message": f"Incorrect API key provided: {KEY}"}}
    async with scene(path, refuses(401, refusal), refuses(400, refusal), answers("fine")) as here:
        reasons = [(await (await here.session.send(text)).outcome()).reason for text in ("one", "two", "three")]
        assert here.provider.requests[0].headers["authorization"] == f"Bearer {KEY}"
        result = " ".join(reasons)

    assert KEY not in result
    assert [file.name for file in path.parent.rglob("*") if file.is_file() and KEY.encode() in file.read_bytes()] == []


async def test_one_model_answers_many_sessions_at_once_without_mixing_them(path: Path) -> None:
    crowd = 20
    everybody = asyncio.Barrier(crowd)

    async def answer(reply: Reply) -> None:
        heard = provider.requests[-1].body["messages"][-1]["content"]
        await reply.stream()
        await reply.send(words("you are "))
        await everybody.wait()
        await reply.send(words(heard) + finish() + DONE)
        await reply.end()

    async with FakeProvider(*[answer] * crowd) as provider:
        agent = OpenAICompatible(provider.base_url, "tiny", KEY)
        async with backstay.open(path, agent=agent, notify=False) as app:
            sessions = [await app.session() for _ in range(crowd)]
            turns = [await session.send(f"number {place}") for place, session in enumerate(sessions)]
            assert [await turn.outcome() for turn in turns] == [Completed()] * crowd
            for place, session in enumerate(sessions):
                assert roles_and_texts(await session.messages())[-1] == ("assistant", f"you are number {place}")


async def test_one_agent_object_serves_one_app_after_another(path: Path) -> None:
    async with FakeProvider(answers("one"), answers("two")) as provider:
        agent = OpenAICompatible(provider.base_url, "tiny", KEY)
        for answer in ("one", "two"):
            async with backstay.open(path, agent=agent, notify=False) as app:
                session = await app.session()
                assert await (await session.send("hi")).outcome() == Completed()
                assert roles_and_texts(await session.messages())[-1] == ("assistant", answer)
