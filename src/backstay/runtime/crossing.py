"""The crossing: the one way from the event loop to the store and back."""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from backstay.errors import ConfigError, StoreUnavailable, UsedAfterFork
from backstay.runtime.witness import Witness
from backstay.store.engine import Pending
from backstay.store.port import Store
from backstay.store.sqlstore import SqlStore

P = ParamSpec("P")
T = TypeVar("T")

READERS = 8


class Crossing:
    """Runs the store's verbs for a loop: writes by the store's own writer, one hop each; reads on a few threads."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self.witness = Witness()
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="backstay-reader")
        self._done: deque[asyncio.Future[None]] = deque()
        self._called = False
        self._closed = False

    async def write(self, verb: Callable[Concatenate[Store, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a verb that is a single write. If the caller is cancelled before it began, it never runs."""
        self.refuse_strangers()
        self.refuse_closed()
        done, began = self._loop.create_future(), self._loop.time()
        pending = self.store.begin(partial(self._finished, done), verb, *args, **kwargs)
        late = self._loop.call_later(self.store.wait_seconds, self._withdraw, pending, done)
        try:
            await done
        except asyncio.CancelledError:
            self.store.give_up(pending)
            raise
        finally:
            late.cancel()
        result = pending.result()
        self.witness.wrote(verb.__name__, self._loop.time() - began)
        return result

    async def read(self, method: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one of the store's methods on a thread, whatever it does there."""
        self.refuse_strangers()
        self.refuse_closed()
        return await self._loop.run_in_executor(self._threads, partial(method, *args, **kwargs))

    async def version(self) -> int:
        """A number that changes whenever anybody has committed anything. The loop does not wait for a far store."""
        return await self.read(self.store.version)

    def heed(self, *hints: Callable[[], None]) -> None:
        """Have these called, on the loop, when another process may just have committed something."""

        def pass_on() -> None:
            with suppress(RuntimeError):  # The loop is closed; nobody waits for news there.
                for hint in hints:
                    self._loop.call_soon_threadsafe(hint)

        self.store.heed(pass_on)

    async def close(self) -> None:
        """Close the store and let the threads finish what they do."""
        self.refuse_strangers()
        self._closed = True
        await self._loop.run_in_executor(self._threads, self.store.close)
        self._threads.shutdown(wait=False)

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process it was made in: neither its loop nor its threads came along."""
        return os.getpid() != self._process

    def refuse_strangers(self) -> None:
        """Raise unless the caller runs on the loop, and in the process, that the app was opened in."""
        if self.forked:
            raise UsedAfterFork("the app was opened by the parent of this process")
        if asyncio.get_running_loop() is not self._loop:
            raise ConfigError(
                "the app was opened on another event loop",
                hint="Await its verbs on the loop that opened it, or share an app of open_blocking() between threads.",
            )

    def refuse_closed(self) -> None:
        """Raise once the app is closed."""
        if self._closed:
            raise StoreUnavailable("the app is closed", hint="Open it again.")

    def _withdraw(self, pending: Pending[T], done: "asyncio.Future[None]") -> None:
        """The verb has not been answered in time: withdraw it. If it runs already, its end is waited for."""
        error = self.store.give_up(pending)
        if error is not None and not done.done():
            done.set_exception(error)

    def _finished(self, done: "asyncio.Future[None]") -> None:
        """Called by the writer's thread. A whole batch of verbs wakes the loop once."""
        self._done.append(done)
        if not self._called:
            self._called = True
            with suppress(RuntimeError):  # The loop is closed; the writer goes on for whoever else writes there.
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._called = False
        while self._done:
            done = self._done.popleft()
            if not done.done():
                done.set_result(None)
