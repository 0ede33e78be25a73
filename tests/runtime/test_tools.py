"""Tools are somebody else's code: however one ends, its call has a result, its turn goes on, and no other notices."""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest

import backstay
from backstay import Text
from backstay.agents.port import AgentTurn
from backstay.agents.tools import Tool, ToolFailed
from backstay.errors import BackstayError, LeaseLost, StoreUnavailable
from backstay.model.content import Body
from backstay.model.event import ToolReturned
from backstay.model.failure_reasons import own_words
from backstay.model.turn import Cancelled, Completed
from tests.databases import Place
from tests.runtime.controlled_agents import PATIENCE, story_of, until

# What is checked here is what the runtime does with agents and answers: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")


def calling(function: Callable[..., Any]) -> Callable[[AgentTurn], AsyncIterator[Body]]:
    """An agent that calls a tool with this function and says what came of it."""

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        try:
            yield Text(f"got {await turn.call(Tool(name='odd', function=function), {})}")
        except ToolFailed as error:
            yield Text(f"{error}")

    return agent


async def told(path: Place, function: Callable[..., Any]) -> str:
    """What the agent says of the tool, when its call has a result, nobody was left behind, and others go on."""
    async with backstay.open(path, agent=calling(function)) as app:
        session = await app.session()
        turn = await session.send("work")
        assert await turn.outcome() == Completed()
        assert [call.effect for call in await turn.calls()] == ["returned"]
        assert app.abandoned == 0
        assert await (await session.send("again")).outcome() == Completed()
        return (await session.messages())[-1].text


def awaited(error: BaseException) -> Callable[[], Awaitable[None]]:
    async def function() -> None:
        await asyncio.sleep(0)
        raise error

    return function


def called(error: BaseException) -> Callable[[], None]:
    def function() -> None:
        raise error

    return function


RAISED = {
    "nothing next": StopIteration(),
    "nothing next in an async loop": StopAsyncIteration(),
    "a cancellation of its own": asyncio.CancelledError(),
    "an exit": SystemExit(3),
    "the end of a generator": GeneratorExit(),
    "something rude": BaseException("rude"),
    "a fault of some store": StoreUnavailable("not here"),
    "a lease of some session": LeaseLost("not mine"),
}


def reason(error: BaseException) -> str:
    """The beginning of what an agent reads: the words of an error of ours, the type of any other."""
    return own_words(error) if isinstance(error, BackstayError) else f"it raised {type(error).__name__} (turn trn_"


@pytest.mark.parametrize("error", [*RAISED.values(), KeyboardInterrupt()], ids=[*RAISED, "an interrupt"])
async def test_whatever_a_tool_raises_on_its_thread_is_told_to_the_agent(path: Place, error: BaseException) -> None:
    assert f"odd failed: {reason(error)}" in (await told(path, called(error)))


@pytest.mark.parametrize("error", RAISED.values(), ids=RAISED)
async def test_whatever_an_async_tool_raises_is_told_to_the_agent(path: Place, error: BaseException) -> None:
    # A coroutine turns the end of an iteration into an error of its own.
    expected = "it raised RuntimeError (turn trn_" if isinstance(error, StopIteration) else reason(error)

    assert f"odd failed: {expected}" in (await told(path, awaited(error)))


async def test_an_async_tool_that_awaits_something_cancelled_has_failed(path: Place) -> None:
    async def function() -> None:
        cancelled = asyncio.create_task(asyncio.Event().wait())
        cancelled.cancel()
        await cancelled

    assert "odd failed: it raised CancelledError (turn trn_" in (await told(path, function))


async def test_a_tool_that_is_stopped_with_its_turn_is_cancelled_and_tells_nobody(path: Place) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    async def function() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
            raise

    async with backstay.open(path, agent=calling(function)) as app:
        turn = await (await app.session()).send("work")
        await began.wait()
        assert isinstance(await turn.cancel(), Cancelled)
        await stopped.wait()
        assert not any(isinstance(event.body, ToolReturned) for event in await story_of(turn))


async def answer() -> str:
    await asyncio.sleep(0)
    return "tea"


class Asked:
    """An object that is called like an async function."""

    async def __call__(self) -> str:
        return await answer()


def begin() -> Awaitable[str]:
    return answer()


@pytest.mark.parametrize(
    "function", [answer, Asked(), partial(answer), begin], ids=["function", "object", "partial", "coroutine"]
)
async def test_what_a_tool_returns_to_be_awaited_is_awaited(
    path: Place, function: Callable[[], Awaitable[str]]
) -> None:
    assert await told(path, function) == "got tea"


async def test_what_fails_while_it_is_awaited_is_told_to_the_agent(path: Place) -> None:
    def function() -> Awaitable[None]:
        return awaited(KeyError("tea"))()

    assert "odd failed: it raised KeyError (turn trn_" in (await told(path, function))


async def test_what_is_returned_to_be_awaited_after_the_turn_is_thrown_away(path: Place) -> None:
    release, began = threading.Event(), threading.Event()
    returned = answer()

    def late() -> Awaitable[str]:
        began.set()
        release.wait(PATIENCE)
        return returned

    async with backstay.open(path, agent=calling(late)) as app:
        turn = await (await app.session()).send("work")
        await asyncio.to_thread(began.wait)
        assert isinstance(await turn.cancel(), Cancelled)
        release.set()
        await until(lambda: inspect.getcoroutinestate(returned) == inspect.CORO_CLOSED)


async def test_a_tool_that_cannot_be_called_at_all_has_failed(path: Place) -> None:
    assert "odd failed: it raised TypeError (turn trn_" in (await told(path, 5))  # type: ignore[arg-type]  # the mistake under test
