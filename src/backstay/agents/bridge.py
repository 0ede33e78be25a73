"""The bridge: how a thread waits for what runs on an event loop."""

import asyncio
import os
from collections.abc import Coroutine
from contextlib import suppress
from typing import Generic, TypeVar

from backstay.errors import BackstayError, ConfigError, UsedAfterFork

T = TypeVar("T")


class Bridge:
    """The way from threads to a loop. It refuses those who would wait for ever, before anything is begun for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._process = os.getpid()

    def wait(self, work: Coroutine[object, object, T]) -> T:
        """Run something on the loop and wait for it; whatever ends the waiting, Ctrl-C too, cancels it."""
        refusal = self.refusal()
        if refusal is not None:
            work.close()
            raise refusal
        errand = _Errand(work)
        try:
            return asyncio.run_coroutine_threadsafe(errand.run(), self.loop).result()
        except BaseException:
            with suppress(RuntimeError):  # The loop is closed; nothing runs there any more.
                self.loop.call_soon_threadsafe(errand.give_up)
            raise

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process it was made in: the loop's thread did not come along."""
        return os.getpid() != self._process

    def refusal(self) -> BackstayError | None:
        """What is wrong with waiting here, if anything."""
        if self.forked:
            return UsedAfterFork("the app was opened by the parent of this process")
        if _running_loop() is self.loop:
            return ConfigError(
                "a blocking verb was called on the event loop that would have to run it, and would wait for itself",
                hint="Here, await the verb of an async app, or make the agent or tool a plain function.",
            )
        return None


class _Errand(Generic[T]):
    """Work that can be given up from the moment it is thought of: Ctrl-C may strike before its future is at hand."""

    def __init__(self, work: Coroutine[object, object, T]) -> None:
        self._work = work
        self._task: asyncio.Task[object] | None = None
        self._given_up = False

    async def run(self) -> T:
        """Do the work, unless it was given up before it began."""
        if self._given_up:
            self._work.close()
            raise asyncio.CancelledError
        self._task = asyncio.current_task()
        return await self._work

    def give_up(self) -> None:
        """Called on the loop, like the work itself: cancel it, wherever it is."""
        self._given_up = True
        if self._task is not None:
            self._task.cancel()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
