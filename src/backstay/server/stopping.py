"""Stopping: a signal to end is heard as soon as somebody may know whom to send it to, and obeyed in good order."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopping:
    """The signals that end a server. Before it has a loop, SIGTERM is only noted, and a Ctrl-C ends it as usual."""

    def __init__(self) -> None:
        self._noted = False
        signal.signal(signal.SIGTERM, self._note)

    @contextmanager
    def heard_by(self, stop: Callable[[int], object]) -> Iterator[None]:
        """Inside the block, in a running loop, this is called with each signal; at once if one was noted before."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, stop, number)
        if self._noted:
            stop(signal.SIGTERM)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted = True
