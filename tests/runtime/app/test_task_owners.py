"""Every task of the runtime has an owner that awaits or cancels it, also when the owner is interrupted."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

import backstay
from backstay import Compaction, Text, Timing
from backstay.agents.port import AgentTurn
from backstay.agents.tools import tool
from backstay.errors import StoreUnavailable
from backstay.model.content import Body
from backstay.model.turn import Cancelled, Completed, Interrupted
from backstay.runtime.turns.deadline import run_with_deadline
from tests.databases import Place
from tests.runtime.controlled_agents import Gate, echo, set_in_the_end, stopping_at

SHORT = Timing(grace=0.05)


def tasks_of_turns() -> list[str]:
    """The names of all tasks that belong to a turn."""
    names = [task.get_name() for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith(("turn", "agent of", "recorder of", "inbox of"))]


async def test_a_cancelled_opening_ends_the_turns_that_it_resumed(path: Place) -> None:
    async with backstay.open(path, agent=stopping_at(Gate()), timing=Timing(grace=0)) as app:
        turns = [await (await app.session()).send("count") for _ in range(2)]
    opening: asyncio.Task[object]

    class Cancelling:
        """Cancels the opening while the second turn is being resumed."""

        def __init__(self) -> None:
            opening.cancel()

        async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
            yield Text("one ")
            await asyncio.Event().wait()

        async def aclose(self) -> None:
            pass

    app = backstay.open(path, agent=Cancelling, on_interrupt="resume", timing=SHORT)
    opening = asyncio.create_task(app.__aenter__())
    with pytest.raises(asyncio.CancelledError):
        await opening

    assert tasks_of_turns() == []
    async with backstay.open(path) as other:
        for turn in turns:
            assert isinstance(await (await other.turn(turn.id)).outcome(), Interrupted)


async def test_a_turn_whose_task_is_cancelled_twice_leaves_no_task(path: Place) -> None:
    started, stopping, release = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow_to_stop(turn: AgentTurn) -> AsyncIterator[Body]:
        try:
            started.set()
            await asyncio.Event().wait()
            yield Text("never")
        finally:
            stopping.set()
            with suppress(asyncio.CancelledError):
                await release.wait()

    with set_in_the_end(release):
        async with backstay.open(path, agent=slow_to_stop) as app:
            turn = await (await app.session()).send("hello")
            await started.wait()
            (running,) = (task for task in asyncio.all_tasks() if task.get_name() == f"turn {turn.id}")
            running.cancel()
            await stopping.wait()
            running.cancel()
            await asyncio.wait({running})
            release.set()
            left = [task for task in asyncio.all_tasks() if task.get_name().endswith(turn.id)]
            if left:
                await asyncio.wait(left, timeout=60)

            assert tasks_of_turns() == []


async def test_the_end_of_a_turn_waits_until_its_async_tool_has_stopped(path: Place) -> None:
    started, cleaned = asyncio.Event(), asyncio.Event()

    @tool
    async def careful() -> str:
        """Clean up in several steps."""
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            for _ in range(2_000):
                await asyncio.sleep(0)
            cleaned.set()
        return "never"

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(str(await turn.call(careful, {})))

    async with backstay.open(path, agent=agent) as app:
        turn = await (await app.session()).send("hello")
        await started.wait()
        assert isinstance(await turn.cancel(), Cancelled)
        assert cleaned.is_set()
        assert app.abandoned == 0


async def test_a_tool_call_that_has_returned_leaves_no_task(path: Place) -> None:
    left: list[str] = []

    @tool
    async def quick() -> str:
        """Return at once."""
        return "done"

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        before = asyncio.all_tasks()
        returned = await turn.call(quick, {})
        left.extend(task.get_name() for task in asyncio.all_tasks() - before)
        yield Text(str(returned))

    async with backstay.open(path, agent=agent) as app:
        assert await (await (await app.session()).send("hello")).outcome() == Completed()
    assert left == []


async def test_an_async_tool_that_does_not_stop_is_abandoned_and_counted(path: Place) -> None:
    started, release = asyncio.Event(), asyncio.Event()
    troubles: list[dict[str, object]] = []

    @tool
    async def stubborn() -> str:
        """Ignore every cancellation."""
        started.set()
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()
        raise RuntimeError("too late")

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(str(await turn.call(stubborn, {})))

    asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
    with set_in_the_end(release):
        async with backstay.open(path, agents={"stubborn": agent, "echo": echo}, timing=SHORT) as app:
            session = await app.session()
            turn = await session.send("hello", agent="stubborn")
            await started.wait()
            assert isinstance(await turn.cancel(), Cancelled)
            assert app.abandoned == 1
            assert await (await session.send("and you?", agent="echo")).outcome() == Completed()
            release.set()
            for _ in range(100):
                await asyncio.sleep(0)
    gc.collect()
    assert troubles == []


async def test_a_cancelled_compaction_waits_until_its_summariser_is_closed(path: Place) -> None:
    gate = Gate()
    closed: list[str] = []

    class Summariser:
        async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
            await gate.stop_here()
            yield Text("never")

        async def aclose(self) -> None:
            for _ in range(2_000):
                await asyncio.sleep(0)
            closed.append("closed")

    policy = Compaction(budget=100_000, keep=1, summariser=backstay.live(Summariser))
    async with backstay.open(path, agent=echo, compaction=policy) as app:
        session = await app.session()
        for _ in range(3):
            await (await session.send("word " * 20)).outcome()
        compacting = asyncio.create_task(session.compact())
        await gate.reached()
        compaction = (await session.read()).running
        assert compaction is not None
        await (await session.turn(compaction)).cancel()
        assert closed == ["closed"]
        with suppress(backstay.errors.AgentFailed):
            await compacting


async def test_work_that_ends_after_its_deadline_is_not_reported_as_lost() -> None:
    release = asyncio.Event()
    troubles: list[dict[str, object]] = []

    async def late() -> None:
        with suppress(asyncio.CancelledError):
            await release.wait()
        await asyncio.sleep(0)
        raise RuntimeError("too late")

    asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
    with pytest.raises(TimeoutError):
        await run_with_deadline(0.001, late())
    gc.collect()
    for _ in range(10):
        await asyncio.sleep(0)
    gc.collect()
    assert troubles == []


async def test_a_closed_app_starts_no_background_task(path: Place) -> None:
    ran: list[str] = []

    async def work() -> None:
        ran.append("ran")

    async with backstay.open(path) as app:
        owned = app.owned_by("anna")
    with pytest.raises(StoreUnavailable):
        owned.start_background(work(), "late")
    await asyncio.sleep(0)
    assert ran == []
