"""A limit for every test: one that hangs fails and shows where every thread stands, and the next one starts.

Some waits have no limit of their own: a lock, a child process, or a call of Playwright whose page goes away before it
answers. A signal ends them on the main thread, where tests run. It is not SIGALRM: a store would see its handler and
write on another thread. If a test ignores even this, `faulthandler_timeout` ends its process.
"""

import faulthandler
import signal
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from tests.effort import THOROUGH

# Waits of tests end after two minutes or less. A thorough run sweeps for long within one test.
LIMIT = 800.0 if THOROUGH else 300.0
SIGNAL = signal.SIGUSR2
_POLL = 0.2


class OutOfTime(BaseException):
    """A test hangs. It is not an `Exception`: code under test may not catch it and continue."""


class _Watchdog:
    """Interrupts the main thread after its deadline, again and again until the deadline is moved."""

    def __init__(self) -> None:
        self._deadline: float | None = None
        self._thread: threading.Thread | None = None

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Raise `OutOfTime` in the block, on the main thread, if it takes longer."""
        if self._thread is None:
            signal.signal(SIGNAL, self._interrupt)
            self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._thread.start()
        before, self._deadline = self._deadline, time.monotonic() + seconds
        try:
            yield
        finally:
            self._deadline = before

    def _watch(self) -> None:
        never = threading.Event()
        while not never.wait(_POLL):
            if self._late():
                signal.pthread_kill(threading.main_thread().ident or 0, SIGNAL)

    def _late(self) -> bool:
        deadline = self._deadline
        return deadline is not None and time.monotonic() > deadline

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        # The block may have ended since the signal was sent.
        if self._late():
            faulthandler.dump_traceback()
            raise OutOfTime


limit = _Watchdog().limit


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    """Limit the fixtures of the test."""
    with limit(LIMIT):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Limit the test."""
    with limit(LIMIT):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """Limit the end of its fixtures."""
    with limit(LIMIT):
        return (yield)
