"""The async store: runs the commands of an event loop without blocking it."""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from backstay.errors import ConfigError, StoreUnavailable, UsedAfterFork
from backstay.model.limits import Limits
from backstay.runtime.observer import Observer
from backstay.store import Store
from backstay.store.commands import Read, Write
from backstay.store.engine import Pending, WouldBlock

P = ParamSpec("P")
T = TypeVar("T")

READERS = 8
# So many short reads may follow each other before the loop runs other tasks.
SHORT_READS = 8


class AsyncStore:
    """Runs commands for an event loop: writes on the store's own writer thread, long reads on a pool of threads.

    Short reads run on the loop itself, where the engine allows it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.observer = Observer()
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="backstay-reader")
        self._done: deque[asyncio.Future[None]] = deque()
        self._called = False
        self._closed = False
        self._short_reads = 0

    async def run(self, command: Write[T] | Read[T]) -> T:
        """Run a command. A write whose caller is cancelled before the write has begun never runs."""
        self.require_own_loop()
        self.require_open()
        if isinstance(command, Read):
            return await self._read(command)
        precheck = self._store.precheck(command)
        if precheck is not None and (known := await self._read(precheck)) is not None:
            return known
        done, began = self._loop.create_future(), self._loop.time()
        pending = self._store.start(command, partial(self._finished, done))
        late = self._loop.call_later(self._store.wait_seconds, self._withdraw, pending, done)
        try:
            await done
        except asyncio.CancelledError:
            # A write that has begun cannot be withdrawn: it may commit, and its caller never reads the result.
            self._store.give_up(pending)
            raise
        finally:
            late.cancel()
        result = pending.result()
        self.observer.wrote(command.name, self._loop.time() - began)
        return result

    async def _read(self, command: Read[T]) -> T:
        """Run a read here if it is short: a switch to another thread and back takes longer than most reads."""
        if not command.long:
            await self._yield_to_loop()
            with suppress(WouldBlock):
                return self._store.read_now(command)
        return await self._loop.run_in_executor(self._threads, self._store.run, command)

    async def _yield_to_loop(self) -> None:
        """Suspend a task after some short reads in a row; otherwise, a task that only reads would block all others."""
        if self._short_reads == 0:
            self._loop.call_soon(self._forget_short_reads)
        self._short_reads += 1
        if self._short_reads > SHORT_READS:
            await asyncio.sleep(0)

    def _forget_short_reads(self) -> None:
        self._short_reads = 0

    async def call(self, method: Callable[Concatenate[Store, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a method of the store that is several transactions, such as `Store.search`, on a thread."""
        self.require_own_loop()
        self.require_open()
        return await self._loop.run_in_executor(self._threads, partial(method, self._store, *args, **kwargs))

    @property
    def limits(self) -> Limits:
        """The limits for names, messages and attachments."""
        return self._store.limits

    @property
    def host(self) -> str:
        """The name of this machine in workspace addresses."""
        return self._store.host

    @property
    def min_poll_delay(self) -> float:
        """The shortest time between two polls that hints cause, in seconds."""
        return self._store.min_poll_delay

    async def version(self) -> int:
        """Read the version of the store: a number that changes whenever any process commits."""
        self.require_own_loop()
        self.require_open()
        with suppress(WouldBlock):
            return self._store.version_now()
        return await self.call(Store.version)

    def on_commit(self, *callbacks: Callable[[], None]) -> None:
        """Call these, on the loop, when another process may just have committed something."""

        def notify() -> None:
            with suppress(RuntimeError):  # The loop is closed: nothing waits there.
                for callback in callbacks:
                    self._loop.call_soon_threadsafe(callback)

        self._store.watch_hints(notify)

    async def close(self) -> None:
        """Close the store. The threads end after the reads that are under way."""
        self.require_own_loop()
        self._closed = True
        await self._loop.run_in_executor(self._threads, self._store.close)
        self._threads.shutdown(wait=False)

    @property
    def forked(self) -> bool:
        """Whether this is a forked child of the process that made it. The loop and the threads do not exist here."""
        return os.getpid() != self._process

    def require_own_loop(self) -> None:
        """Raise unless the caller runs on the loop, and in the process, that the app was opened in."""
        if self.forked:
            raise UsedAfterFork("the app was opened by the parent of this process")
        if asyncio.get_running_loop() is not self._loop:
            raise ConfigError(
                "the app was opened on another event loop",
                hint="Await its methods on that loop, or share an app of open_blocking() between threads.",
            )

    def require_open(self) -> None:
        """Raise once the app is closed."""
        if self._closed:
            raise StoreUnavailable("the app is closed", hint="Open it again.")

    def _withdraw(self, pending: Pending[T], done: "asyncio.Future[None]") -> None:
        """Withdraw a write that has not begun in time. One that has begun is awaited."""
        error = self._store.give_up(pending)
        if error is not None and not done.done():
            done.set_exception(error)

    def _finished(self, done: "asyncio.Future[None]") -> None:
        """Called on the writer's thread when a write has ended. A batch of writes wakes the loop only once."""
        self._done.append(done)
        if not self._called:
            self._called = True
            with suppress(RuntimeError):  # The loop is closed; the writer continues for other threads.
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._called = False
        while self._done:
            done = self._done.popleft()
            if not done.done():
                done.set_result(None)
