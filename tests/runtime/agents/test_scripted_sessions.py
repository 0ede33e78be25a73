"""The scripted agent on the runtime: it works without a key or network, with the same runtime as any agent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import backstay
from backstay import App, Text, Thought, ToolCall, ToolResult
from backstay.agents.scripted.scripted_agent import ScriptedAgent
from backstay.model.event import ToolCalled
from backstay.model.turn import Cancelled, Completed, Failed
from backstay.runtime.session_handle import Session
from tests.runtime.controlled_agents import events_of_turn, first_words, roles_and_texts

# These tests are about agents and their output in the runtime: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")


@asynccontextmanager
async def chat(path: Path, **settings: Any) -> AsyncIterator[tuple[App, Session]]:
    """A session that the scripted agent answers, without the wake-up inside the process."""
    async with backstay.open(path, agent=ScriptedAgent(**settings), notify=False) as app:
        yield app, await app.session()


async def test_the_scripted_agent_thinks_calls_tools_and_answers_in_one_turn(path: Path) -> None:
    async with chat(path) as (_, session):
        turn = await session.send("think hard about it\ncalc 6*7\nhello")
        assert await turn.outcome() == Completed()
        parts = [part for message in await session.messages() for part in message.parts][1:]
        assert parts[0] == Thought("hard about it")
        assert ToolCall("ledger-1", "calculator", {"expression": "6*7"}, idempotent=True) in parts
        assert ToolResult("ledger-1", "42") in parts
        assert "calculator: 42" in "".join(part.text for part in parts if isinstance(part, Text))
        assert [(line.name, line.effect) for line in await turn.calls()] == [("calculator", "returned")]
        usage = (await turn.read()).usage
        assert (usage.input_tokens, usage.model) == (7, "scripted")
        assert usage.output_tokens > 0


async def test_the_scripted_agent_searches_only_sessions_of_the_owner(path: Path) -> None:
    async with backstay.open(path, agent=ScriptedAgent(), owner="somebody else") as foreign:
        await (await (await foreign.session()).send("the treasure is elsewhere")).outcome()
    async with chat(path) as (app, session):
        other = await app.session()
        await (await other.send("the treasure lies under the oak")).outcome()
        turn = await session.send("search treasure oak")
        assert await turn.outcome() == Completed()
        parts = [part for message in await session.messages() for part in message.parts]
        (result,) = [part.output for part in parts if isinstance(part, ToolResult)]
        found = str(result)
    assert "under the oak" in found
    assert "elsewhere" not in found


async def test_a_long_answer_is_stored_whole(path: Path) -> None:
    async with chat(path) as (_, session):
        assert await (await session.send("long 300")).outcome() == Completed()
        answer = (await session.messages())[-1].text
        assert len(answer) == 300 * 1024
        assert answer.startswith("0000000 ")
        assert answer.splitlines()[-1].startswith(f"{300 * 16 - 1:07d} ")


async def test_a_scripted_failure_has_the_given_reason_and_keeps_the_output(path: Path) -> None:
    async with chat(path) as (_, session):
        outcome = await (await session.send("fail for a change")).outcome()
        assert isinstance(outcome, Failed)
        assert outcome.reason.startswith("for a change")
        said = (await session.messages())[-1]
        assert (said.text, said.partial) == ("I am about to fail.\n", True)


async def test_a_slow_answer_is_streamed_and_takes_steering(path: Path) -> None:
    step = asyncio.Semaphore(0)

    async def pause(seconds: float) -> None:
        await step.acquire()

    async with chat(path, pause=pause) as (_, session):
        turn = await session.send("slow 3")
        assert await first_words(turn) == "1 of 3. "
        steering = await session.steer("faster, please")
        step.release()
        step.release()
        assert await turn.outcome() == await steering.outcome() == Completed()
        answer = (await session.messages())[-1].text
        assert "“faster, please”" in answer
        assert answer.endswith("3 of 3. ")


async def test_a_cancelled_slow_answer_is_cancelled_even_if_it_returns_normally(path: Path) -> None:
    async def pause(seconds: float) -> None:
        """Let other tasks run once."""
        await asyncio.sleep(0)

    async with chat(path, pause=pause) as (_, session):
        for _ in range(10):
            turn = await session.send("slow 9999")
            await first_words(turn)
            assert isinstance(await turn.cancel(), Cancelled)
            assert (await session.messages())[-1].partial


async def test_a_question_waits_for_a_person(path: Path) -> None:
    async with chat(path) as (_, session):
        turn = await session.send("ask May I?")
        async for event in turn.events():
            if isinstance(event.body, ToolCalled):
                await turn.approve(event.body.call.id)
        assert await turn.outcome() == Completed()
        assert "a person agreed: May I?" in roles_and_texts(await session.messages())[-1][1]


async def test_the_same_script_writes_the_same_events_twice(path: Path) -> None:
    async with chat(path) as (app, first):
        second = await app.session()
        texts = ["think of it\ncalc 2+2", "fail so", "long 4"]
        for session in (first, second):
            for text in texts:
                await events_of_turn(await session.send(text))
        assert roles_and_texts(await first.messages()) == roles_and_texts(await second.messages())


@pytest.mark.parametrize(("words", "then"), [([], ""), (["calc 6*7"], "calculator: 42\n")])
async def test_the_scripted_agent_names_the_files_that_it_was_sent(path: Path, words: list[str], then: str) -> None:
    async with chat(path) as (_, session):
        await (await session.send([*words, await session.upload(b"tea", name="tea.txt")])).outcome()
        said = [message.text for message in await session.messages() if message.role == "assistant"]
        assert "".join(said) == "You sent me tea.txt (text/plain, 3 bytes).\n" + then
