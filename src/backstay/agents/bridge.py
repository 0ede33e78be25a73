"""The bridge: how a thread waits for what runs on an event loop."""

import asyncio
import os
from collections.abc import Coroutine
from typing import Any, TypeVar

from backstay.errors import BackstayError, ConfigError, UsedAfterFork

T = TypeVar("T")


class Bridge:
    """The way from threads to a loop. It refuses those who would wait for ever, before anything is begun for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._process = os.getpid()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the loop and wait for it; whatever ends the waiting, Ctrl-C too, cancels it."""
        refusal = self.refusal()
        if refusal is not None:
            work.close()
            raise refusal
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
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


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
