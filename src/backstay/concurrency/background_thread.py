"""Threads for blocking code. Starting one never blocks the event loop.

`threading.Thread.start` waits until the new thread has started. A thread that runs out of memory before that never
reports it, and the caller of `start` waits forever.
"""

import _thread
import asyncio
import sys
import threading
import weakref
from collections.abc import Callable

from backstay.errors import AgentFailed

_POLL_SECONDS = 0.25


class ThreadLost(AgentFailed):
    """A thread could not start, or ended without a result, because the process lacks memory or threads."""

    hint = "Give the process more memory or more threads, or run fewer turns at once."


class _Liveness:
    """An object that exists exactly as long as its thread; its end needs no memory."""

    __slots__ = ("__weakref__",)


class BackgroundThread:
    """One function on a thread of its own; the interpreter does not wait for it at exit."""

    def __init__(self, work: Callable[[], None]) -> None:
        """Start it.

        Raises:
            ThreadLost: The system cannot start another thread.
        """
        self._began = False
        liveness = _Liveness()
        self._liveness = weakref.ref(liveness)
        try:
            _thread.start_new_thread(self._run, (liveness, work))
        except (RuntimeError, MemoryError) as error:
            raise ThreadLost(f"no thread could be started: {str(error) or 'out of memory'}") from error

    def is_alive(self) -> bool:
        """Whether the thread has not ended yet."""
        return self._liveness() is not None

    def lost(self) -> ThreadLost:
        """Return the error for a thread that ended without a result."""
        if self._began:
            return ThreadLost("its thread ended without an answer: out of memory")
        return ThreadLost("no thread could be started: out of memory")

    def watch(self, on_end: Callable[[], None]) -> "ThreadWatch":
        """Call `on_end` on the running loop when the thread has ended, after all callbacks that it scheduled there."""
        return ThreadWatch(self, on_end)

    def _run(self, liveness: _Liveness, work: Callable[[], None]) -> None:
        # The interpreter holds its own reference until the thread has ended; a traceback might keep this frame.
        del liveness
        self._began = True
        # As `threading` does for its threads, so that debuggers and coverage see this one.
        if threading.gettrace() is not None:
            sys.settrace(threading.gettrace())
        if threading.getprofile() is not None:
            sys.setprofile(threading.getprofile())
        work()


class ThreadWatch:
    """Polls whether a thread has ended. A thread without memory could not report it itself."""

    def __init__(self, thread: BackgroundThread, on_end: Callable[[], None]) -> None:
        self._thread, self._on_end = thread, on_end
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_later(_POLL_SECONDS, self._poll)

    def cancel(self) -> None:
        """Stop polling."""
        self._next.cancel()

    def _poll(self) -> None:
        if self._thread.is_alive():
            self._next = self._loop.call_later(_POLL_SECONDS, self._poll)
        else:
            # The callbacks that the thread scheduled before its end are already in the loop's queue and run first.
            self._next = self._loop.call_later(0, self._on_end)
