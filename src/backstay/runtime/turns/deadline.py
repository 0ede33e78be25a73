"""A deadline for foreign code, which is abandoned if it does not end even when cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")

# The event loop refers only weakly to its tasks: an abandoned one could be collected before it has cleaned up.
_tasks: set[asyncio.Task[object]] = set()


async def run_with_deadline(seconds: float, work: Coroutine[object, object, T]) -> T:
    """Return the result of the coroutine; raise `TimeoutError` after this many seconds.

    At the deadline the coroutine is cancelled and not awaited any longer, even if it ignores the cancellation. If the
    caller is cancelled, the coroutine is cancelled and gets the same number of seconds to clean up.
    """
    task = asyncio.create_task(work)
    _tasks.add(task)
    task.add_done_callback(_forget)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        # Wait for the clean-up, such as the end of a process. A second cancellation of the caller ends this wait.
        await asyncio.wait({task}, timeout=seconds)
        raise
    if not done:
        task.cancel()
        raise TimeoutError(f"it took longer than {seconds:g} s")
    return task.result()


def _forget(task: "asyncio.Task[object]") -> None:
    _tasks.discard(task)
    if not task.cancelled():
        task.exception()  # Retrieved, so that asyncio does not report the exception of an abandoned task.
