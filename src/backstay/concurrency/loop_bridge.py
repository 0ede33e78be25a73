"""Lets a thread wait for a coroutine on an event loop."""

import asyncio
import os
from collections.abc import Coroutine
from contextlib import suppress
from typing import Generic, TypeVar

from backstay.errors import BackstayError, ConfigError, UsedAfterFork

T = TypeVar("T")


class LoopBridge:
    """Runs coroutines of other threads on a loop. A call that would wait forever is rejected before it starts."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._process = os.getpid()

    def wait(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine on the loop and wait for it. Anything that ends the wait, such as Ctrl-C, cancels it."""
        refusal = self.refusal()
        if refusal is not None:
            work.close()
            raise refusal
        call = _LoopCall(work)
        try:
            return asyncio.run_coroutine_threadsafe(call.run(), self.loop).result()
        except BaseException:
            # Through the loop, not through the future: Ctrl-C may arrive before the future exists.
            with suppress(RuntimeError):  # The loop is closed, so nothing runs there.
                self.loop.call_soon_threadsafe(call.cancel)
            raise

    @property
    def forked(self) -> bool:
        """Whether this is a forked child process, where the loop's thread does not exist."""
        return os.getpid() != self._process

    def refusal(self) -> BackstayError | None:
        """Return the error for waiting here, or None if it is allowed."""
        if self.forked:
            return UsedAfterFork("the app was opened by the parent of this process")
        if _running_loop() is self.loop:
            return ConfigError(
                "a blocking method was called on the event loop that would have to run it; it would wait for itself",
                hint="Here, await the method of an async app, or make the agent or tool a plain function.",
            )
        return None


class _LoopCall(Generic[T]):
    """A coroutine that can be cancelled at any time: Ctrl-C may arrive before its future is available."""

    def __init__(self, work: Coroutine[object, object, T]) -> None:
        self._work = work
        self._task: asyncio.Task[object] | None = None
        self._cancelled = False

    async def run(self) -> T:
        """Run the coroutine, unless it was cancelled before it started."""
        if self._cancelled:
            self._work.close()
            raise asyncio.CancelledError
        self._task = asyncio.current_task()
        return await self._work

    def cancel(self) -> None:
        """Cancel the coroutine. Must be called on the loop."""
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
