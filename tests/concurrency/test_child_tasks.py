"""Child tasks have ended when their block ends: completed, failed or cancelled."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from backstay.concurrency.child_tasks import child_tasks, run_concurrently, run_to_end, wait_for_first


class Work:
    """A coroutine that waits until the test opens it, and cleans up after a cancellation in several steps."""

    def __init__(self, result: int = 0) -> None:
        self.result = result
        self.began, self.opened, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def run(self) -> int:
        self.began.set()
        try:
            await self.opened.wait()
        finally:
            for _ in range(3):
                await asyncio.sleep(0)
            self.ended.set()
        return self.result


async def fail() -> int:
    raise ValueError("boom")


def other_tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


async def test_at_its_end_a_block_cancels_its_tasks_and_waits_for_their_cleanup() -> None:
    work = Work()
    async with child_tasks() as start:
        task = start(work.run(), "child")
        await work.began.wait()
        assert task.get_name() == "child"

    assert task.cancelled()
    assert work.ended.is_set()


async def test_a_block_raises_its_own_error_after_its_tasks_have_ended() -> None:
    work = Work()

    async def block() -> None:
        async with child_tasks() as start:
            start(work.run())
            await work.began.wait()
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        await block()

    assert work.ended.is_set()


async def test_the_results_of_concurrent_coroutines_are_in_their_order() -> None:
    works = [Work(number) for number in range(3)]
    running = asyncio.create_task(run_concurrently([work.run() for work in works]))
    for work in reversed(works):
        await work.began.wait()
        work.opened.set()

    assert await running == [0, 1, 2]
    assert await run_concurrently([]) == []


async def test_if_one_of_several_coroutines_fails_the_others_end_first() -> None:
    work = Work()

    with pytest.raises(ValueError, match="boom"):
        await run_concurrently([work.run(), fail()])

    assert work.ended.is_set()
    assert not other_tasks()


async def one_of(event: asyncio.Event) -> None:
    await wait_for_first(event, asyncio.Event())


async def several(event: asyncio.Event) -> None:
    await run_concurrently([event.wait(), event.wait()])


@pytest.mark.parametrize("waiting", [one_of, several])
async def test_a_cancelled_wait_leaves_no_task(waiting: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    task = asyncio.create_task(waiting(asyncio.Event()))
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(other_tasks()) == 3

    task.cancel()
    await asyncio.wait({task})

    assert task.cancelled()
    assert not other_tasks()


async def test_the_first_event_ends_the_wait_for_several() -> None:
    first, second = asyncio.Event(), asyncio.Event()
    second.set()

    await wait_for_first(first, second)

    assert not other_tasks()


async def test_cancellations_do_not_interrupt_work_that_runs_to_its_end() -> None:
    work = Work()
    running = asyncio.create_task(run_to_end(work.run()))
    await work.began.wait()
    for _ in range(2):
        running.cancel()
        await asyncio.sleep(0)
    assert not running.done()

    work.opened.set()
    await asyncio.wait({running})

    assert running.cancelled()
    assert work.ended.is_set()


async def test_work_that_runs_to_its_end_returns_its_result_or_raises_its_error() -> None:
    work = Work(7)
    work.opened.set()

    assert await run_to_end(work.run()) == 7
    with pytest.raises(ValueError, match="boom"):
        await run_to_end(fail())
