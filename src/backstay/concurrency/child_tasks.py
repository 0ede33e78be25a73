"""Child tasks: tasks that a block starts, and that have ended when the block ends."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

T = TypeVar("T")


class StartTask(Protocol):
    """Starts a child task."""

    def __call__(self, work: Coroutine[object, object, T], name: str | None = None) -> "asyncio.Task[T]":
        """Run the coroutine in a task of the block."""
        ...


@asynccontextmanager
async def child_tasks() -> AsyncIterator[StartTask]:
    """A block of child tasks: at its end, those that still run are cancelled and awaited.

    `asyncio.TaskGroup` would wait for all of them instead, and raise their errors in a group. Here the block takes the
    results that it needs from the tasks.
    """
    tasks: list[asyncio.Task[object]] = []

    def start(work: Coroutine[object, object, T], name: str | None = None) -> "asyncio.Task[T]":
        task = asyncio.create_task(work, name=name)
        tasks.append(task)
        return task

    try:
        yield start
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run_concurrently(works: Iterable[Coroutine[object, object, T]], name: str | None = None) -> list[T]:
    """Run these concurrently; return their results in the same order.

    If one raises, or the caller is cancelled, the others are cancelled, and awaited before the error is raised.
    """
    async with child_tasks() as start:
        return await asyncio.gather(*[start(work, name) for work in works])


async def wait_for_first(*events: asyncio.Event) -> None:
    """Wait until one of these events is set."""
    async with child_tasks() as start:
        waits = [start(event.wait(), "backstay event") for event in events]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)


async def run_to_end(work: Coroutine[object, object, T], name: str | None = None) -> T:
    """Run a coroutine to its end, even if the caller is cancelled meanwhile: then the cancellation is raised after it.

    Only for work that is short or has a time limit, such as the end of a process.
    """
    task = asyncio.create_task(work, name=name)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # Retrieved, so that asyncio does not report it: the cancellation takes precedence.
        raise cancelled
    return task.result()
