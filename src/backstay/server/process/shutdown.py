"""Stop signals: received from the start of the process, and handled gracefully."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Shutdown:
    """SIGTERM and SIGINT. Before an event loop runs, SIGTERM is only recorded, and Ctrl-C ends the process as usual."""

    def __init__(self) -> None:
        self._recorded = False
        self._handlers: list[Callable[[int], object]] = []
        signal.signal(signal.SIGTERM, self._record)

    @contextmanager
    def handled_by(self, stop: Callable[[int], object]) -> Iterator[None]:
        """Inside the block, call `stop` with each signal; at once if a signal was recorded before.

        Needs a running event loop. Blocks may be nested or follow each other. A signal between two blocks is recorded
        for the second.
        """
        loop = asyncio.get_running_loop()
        self._handlers.append(stop)
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._receive, number)
        if self._recorded:
            stop(signal.SIGTERM)
        try:
            yield
        finally:
            self._handlers.remove(stop)
            if not self._handlers:
                for number in _SIGNALS:
                    loop.remove_signal_handler(number)
                signal.signal(signal.SIGTERM, self._record)

    def _receive(self, number: int) -> None:
        self._recorded = True
        for stop in tuple(self._handlers):
            stop(number)

    def _record(self, number: int, frame: FrameType | None) -> None:
        self._recorded = True
