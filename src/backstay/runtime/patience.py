"""Patience: waiting for code that is not ours, and leaving it behind when it does not come to an end."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


async def within(seconds: float, work: Coroutine[object, object, T]) -> T:
    """What the work gives, or `TimeoutError`; work that does not even end when it is cancelled is not waited for."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not done:
        task.cancel()
        raise TimeoutError(f"it took longer than {seconds:g} s")
    return task.result()
