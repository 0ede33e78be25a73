"""The pipe between a test and its child process: short messages, both ways. This is the end of the child."""

import asyncio
import os
from collections import defaultdict
from multiprocessing.connection import Connection
from typing import Any

Words = tuple[Any, ...]  # Any: small values that a test and its child agree on


class ChildPipe:
    """Reports the progress of the child, and passes the test's orders to their receivers."""

    def __init__(self, pipe: "Connection[Any, Any]") -> None:
        self._pipe = pipe
        self._orders: defaultdict[str, asyncio.Queue[Words]] = defaultdict(asyncio.Queue)

    def listen(self) -> None:
        """Receive orders from now on; needs a running loop."""
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._take)

    def report(self, *words: Any) -> None:
        """Send a report."""
        self._pipe.send(words)

    async def next_order(self, to: str) -> Words:
        """The next order for a receiver of this name."""
        return await self._orders[to].get()

    def _take(self) -> None:
        try:
            while self._pipe.poll():
                to, *words = self._pipe.recv()
                self._orders[to].put_nowait(tuple(words))
        except EOFError:
            os._exit(1)  # The test has ended; no process must be left behind.
