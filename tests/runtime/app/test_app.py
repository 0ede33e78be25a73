"""An open app: an input is answered, stored and shown, in one process or several."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import backstay
from backstay import Address, Text
from backstay.agents.blocking_agent import BlockingAgentTurn
from backstay.agents.port import AgentTurn
from backstay.errors import StoreMoved
from backstay.model.content import Body
from backstay.model.event import TextDelta, TurnEnded
from backstay.model.turn import Completed, Failed
from tests.crash.worker_processes import open_files

CHAT = Address.chat("telegram", "dm", chat="42")


async def echo(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text("You said: ")
    yield Text(turn.input.text)


def test_an_input_is_answered_and_both_are_messages(tmp_path: Path) -> None:
    async def scenario() -> list[tuple[str, str]]:
        async with backstay.open(tmp_path / "chat.db", agent=echo) as app:
            session = await app.session(CHAT)
            turn = await session.send("hello")
            assert await turn.outcome() == Completed()
            return [(message.role, message.text) for message in await session.messages()]

    assert asyncio.run(scenario()) == [("user", "hello"), ("assistant", "You said: hello")]


def test_a_turns_events_are_replayed_from_its_beginning_and_end_with_its_outcome(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        async with backstay.open(tmp_path / "chat.db", agent=echo) as app:
            session = await app.session(CHAT)
            await (await session.send("first")).outcome()
            turn = await session.send("second")
            events = [event async for event in turn.events()]
            assert isinstance(events[-1].body, TurnEnded)
            return [event.body.text for event in events if isinstance(event.body, TextDelta)]

    assert "".join(asyncio.run(scenario())) == "You said: second"


def test_a_repeated_request_is_the_first_turn_also_after_a_restart(tmp_path: Path) -> None:
    async def send() -> tuple[str, bool]:
        async with backstay.open(tmp_path / "chat.db", agent=echo) as app:
            session = await app.session(CHAT)
            turn = await session.send("hello", request_id="m-1")
            await turn.outcome()
            return turn.id, turn.repeated

    first, second = asyncio.run(send()), asyncio.run(send())

    assert first == (second[0], False)
    assert second[1]


def test_an_agent_that_raises_fails_the_turn_and_keeps_its_output(tmp_path: Path) -> None:
    async def faulty(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("half an ans")
        raise ValueError("no more words")

    async def scenario() -> tuple[object, str, bool]:
        async with backstay.open(tmp_path / "chat.db", agent=faulty) as app:
            session = await app.session(CHAT)
            outcome = await (await session.send("hello")).outcome()
            last = (await session.messages())[-1]
            return outcome, last.text, last.partial

    outcome, said, partial = asyncio.run(scenario())
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("the agent raised ValueError (turn trn_")
    assert (said, partial) == ("half an ans", True)


def test_a_blocking_generator_is_an_agent_too(tmp_path: Path) -> None:
    def slow_old_library(turn: BlockingAgentTurn) -> Iterator[Body]:
        assert backstay.current().id == turn.id
        yield Text("from ")
        yield Text("a thread")

    async def scenario() -> str:
        async with backstay.open(tmp_path / "chat.db", agent=slow_old_library) as app:
            session = await app.session(CHAT)
            await (await session.send("hello")).outcome()
            return (await session.messages())[-1].text

    assert asyncio.run(scenario()) == "from a thread"


def test_a_turn_accepted_by_one_app_is_answered_by_another_that_serves_its_agent(tmp_path: Path) -> None:
    async def scenario() -> str:
        async with (
            backstay.open(tmp_path / "chat.db", notify=False) as door,
            backstay.open(tmp_path / "chat.db", agent=echo, notify=False),
        ):
            session = await door.session(CHAT)
            turn = await session.send("anybody there?")
            await turn.outcome()
            return (await session.messages())[-1].text

    assert asyncio.run(scenario()) == "You said: anybody there?"


def test_cancelling_keeps_the_output(tmp_path: Path) -> None:
    async def endless(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        await asyncio.Event().wait()

    async def scenario() -> tuple[str, str]:
        async with backstay.open(tmp_path / "chat.db", agent=endless) as app:
            session = await app.session(CHAT)
            turn = await session.send("count")
            async for event in turn.events():
                if isinstance(event.body, TextDelta):
                    break
            outcome = await turn.cancel()
            return type(outcome).__name__, (await session.messages())[-1].text

    assert asyncio.run(scenario()) == ("Cancelled", "one ")


def test_an_app_that_fails_to_open_leaves_nothing_open(tmp_path: Path) -> None:
    backstay.open_store(tmp_path / "chat.db").close()
    backstay.move(tmp_path / "chat.db", tmp_path / "moved.db")

    async def scenario() -> None:
        for _ in range(2):
            with pytest.raises(StoreMoved):
                await backstay.open(tmp_path / "chat.db", agent=echo).__aenter__()
            assert open_files(tmp_path) == []

    asyncio.run(scenario())
