"""Closing despite code that does not stop: a titler, an agent's close, a thread. Every wait has a limit."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import backstay
from backstay import Text, Timing
from backstay.agents.blocking_agent import BlockingAgentTurn, Emit, callback_agent
from backstay.agents.port import AgentTurn
from backstay.model.content import Body
from backstay.model.message import Message
from backstay.model.turn import Cancelled, Completed
from tests.runtime.controlled_agents import PATIENCE, echo, first_words

QUICK = Timing(grace=0.1)
Titler = Callable[[tuple[Message, ...]], Awaitable[str]]


ENOUGH = threading.Event()


async def deaf() -> None:
    """Ignore cancellation until the test releases it."""
    while not ENOUGH.is_set():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


@asynccontextmanager
async def enough_in_the_end() -> AsyncIterator[None]:
    """After the block, however it ends, the stubborn tasks are released: only then can the test's own loop end."""
    ENOUGH.clear()
    try:
        yield
    finally:
        ENOUGH.set()


class Leaving:
    """An agent object that sends one word, and then ends in its own way."""

    def __init__(self, leave: Callable[[], Awaitable[None]]) -> None:
        self._leave = leave

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("hello")

    async def aclose(self) -> None:
        await self._leave()


async def leave_the_program() -> None:
    sys.exit(4)


async def refuse_to_leave() -> None:
    raise RuntimeError("I like it here")


@pytest.mark.parametrize("leave", [deaf, leave_the_program, refuse_to_leave])
async def test_an_agent_that_does_not_stop_does_not_prevent_closing(
    path: Path, leave: Callable[[], Awaitable[None]]
) -> None:
    async with enough_in_the_end(), backstay.open(path, agent=Leaving(leave), timing=QUICK) as app:
        session = await app.session()
        assert await (await session.send("x")).outcome() == Completed()
    async with backstay.open(path) as app:
        assert (await (await app.session(session.id)).read()).running is None


@pytest.mark.parametrize("leave", [deaf, leave_the_program, refuse_to_leave])
async def test_an_agent_made_for_one_turn_that_fails_to_close_does_not_block_the_session(
    path: Path, leave: Callable[[], Awaitable[None]]
) -> None:
    class Made(Leaving):
        def __init__(self) -> None:
            super().__init__(leave)

    async with enough_in_the_end(), backstay.open(path, agent=Made, timing=QUICK) as app:
        session = await app.session()
        for text in ("one", "two"):
            await (await session.send(text)).outcome()
        assert [message.text for message in await session.messages()] == ["one", "hello", "two", "hello"]


async def deaf_titler(messages: tuple[Message, ...]) -> str:
    await deaf()
    return "never"


async def leaving_titler(messages: tuple[Message, ...]) -> str:
    sys.exit(3)


@pytest.mark.parametrize("titler", [deaf_titler, leaving_titler])
async def test_a_titler_that_hangs_or_raises_affects_no_turn(path: Path, titler: Titler) -> None:
    async with enough_in_the_end(), backstay.open(path, agent=echo, titler=titler, timing=QUICK) as app:
        session = await app.session()
        assert await (await session.send("one")).outcome() == Completed()
        assert await (await session.send("two")).outcome() == Completed()
    async with backstay.open(path) as app:
        assert (await (await app.session(session.id)).read()).title is None


# --- callback agents ------------------------------------------------------------------------------------------------


async def test_the_output_of_a_callback_agent_stays_in_order(path: Path) -> None:
    def agent(turn: BlockingAgentTurn, say: Emit) -> None:
        for number in range(100):
            say(Text(f"{number} "))

    async with backstay.open(path, agent=callback_agent(agent)) as app:
        session = await app.session()
        assert await (await session.send("count")).outcome() == Completed()
        assert (await session.messages())[-1].text == "".join(f"{number} " for number in range(100))
        assert app.abandoned == 0


async def test_all_threads_of_an_agent_are_released_when_its_turn_ends(path: Path) -> None:
    speakers: list[threading.Thread] = []
    started = threading.Event()

    def agent(turn: BlockingAgentTurn, say: Emit) -> None:
        def speak() -> None:
            try:
                while True:
                    say(Text("and "))
            except BaseException:  # noqa: BLE001  # it was told to stop, which is all it waits for
                return

        speakers.extend(threading.Thread(target=speak, daemon=True) for _ in range(4))
        for speaker in speakers:
            speaker.start()
        started.set()
        for speaker in speakers:
            speaker.join()

    async with backstay.open(path, agent=callback_agent(agent), timing=QUICK) as app:
        turn = await (await app.session()).send("talk")
        await first_words(turn)
        assert await asyncio.to_thread(started.wait, PATIENCE)
        assert isinstance(await turn.cancel(), Cancelled)
        for speaker in speakers:
            await asyncio.to_thread(speaker.join, PATIENCE / 4)
        assert [speaker.is_alive() for speaker in speakers] == [False] * 4
