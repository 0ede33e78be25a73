"""Tools are foreign code: each call has a result, its turn continues, and no other turn is affected."""

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
from backstay.model.failure_reasons import message_of
from backstay.model.turn import Cancelled, Completed
from tests.databases import Place
from tests.runtime.controlled_agents import PATIENCE, events_of_turn, until

# These tests are about agents and their output in the runtime: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")


def calling(function: Callable[..., Any]) -> Callable[[AgentTurn], AsyncIterator[Body]]:
    """An agent that calls a tool with this function and reports the result."""

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        try:
            yield Text(f"got {await turn.call(Tool(name='odd', function=function), {})}")
        except ToolFailed as error:
            yield Text(f"{error}")

    return agent


async def roles_and_texts(path: Place, function: Callable[..., Any]) -> str:
    """The agent's report of the tool, when its call has a result, nothing was abandoned, and others continue."""
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
    """The beginning of the error text that an agent reads: the message of our own errors, the type of others."""
    return message_of(error) if isinstance(error, BackstayError) else f"it raised {type(error).__name__} (turn trn_"


@pytest.mark.parametrize("error", [*RAISED.values(), KeyboardInterrupt()], ids=[*RAISED, "an interrupt"])
async def test_any_exception_of_a_tool_on_its_thread_is_raised_in_the_agent(path: Place, error: BaseException) -> None:
    assert f"odd failed: {reason(error)}" in (await roles_and_texts(path, called(error)))


@pytest.mark.parametrize("error", RAISED.values(), ids=RAISED)
async def test_any_exception_of_an_async_tool_is_raised_in_the_agent(path: Place, error: BaseException) -> None:
    # A coroutine turns the end of an iteration into an error of its own.
    expected = "it raised RuntimeError (turn trn_" if isinstance(error, StopIteration) else reason(error)

    assert f"odd failed: {expected}" in (await roles_and_texts(path, awaited(error)))


async def test_an_async_tool_that_awaits_something_cancelled_has_failed(path: Place) -> None:
    async def function() -> None:
        cancelled = asyncio.create_task(asyncio.Event().wait())
        cancelled.cancel()
        await cancelled

    assert "odd failed: it raised CancelledError (turn trn_" in (await roles_and_texts(path, function))


async def test_a_tool_that_is_stopped_with_its_turn_is_cancelled_silently(path: Place) -> None:
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
        assert not any(isinstance(event.body, ToolReturned) for event in await events_of_turn(turn))


async def test_a_cancelled_call_leaves_no_task_that_waits_for_the_end_of_its_turn(path: Place) -> None:
    began = asyncio.Event()
    left: list[str] = []

    async def function() -> None:
        began.set()
        await asyncio.Event().wait()

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        try:
            await turn.call(Tool(name="odd", function=function), {})
        except asyncio.CancelledError:
            left.extend(task.get_name() for task in asyncio.all_tasks() if task.get_name() == f"end of {turn.id}")
            raise
        yield Text("never")

    async with backstay.open(path, agent=agent) as app:
        turn = await (await app.session()).send("work")
        await began.wait()
        assert isinstance(await turn.cancel(), Cancelled)

    assert left == []


async def answer() -> str:
    await asyncio.sleep(0)
    return "tea"


class AsyncCallable:
    """An object that is called like an async function."""

    async def __call__(self) -> str:
        return await answer()


def begin() -> Awaitable[str]:
    return answer()


@pytest.mark.parametrize(
    "function", [answer, AsyncCallable(), partial(answer), begin], ids=["function", "object", "partial", "coroutine"]
)
async def test_an_awaitable_result_of_a_tool_is_awaited(path: Place, function: Callable[[], Awaitable[str]]) -> None:
    assert await roles_and_texts(path, function) == "got tea"


async def test_an_awaitable_result_that_fails_is_raised_in_the_agent(path: Place) -> None:
    def function() -> Awaitable[None]:
        return awaited(KeyError("tea"))()

    assert "odd failed: it raised KeyError (turn trn_" in (await roles_and_texts(path, function))


async def test_an_awaitable_returned_after_the_turn_is_discarded(path: Place) -> None:
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
    assert "odd failed: it raised TypeError (turn trn_" in (await roles_and_texts(path, 5))  # type: ignore[arg-type]  # the mistake under test
