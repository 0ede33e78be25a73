"""The crossing: the one way from the event loop to the store and back."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from backstay.errors import StoreUnavailable
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
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="backstay-reader")
        self._done: deque[asyncio.Future[None]] = deque()
        self._called = False
        self._closed = False

    async def write(self, verb: Callable[Concatenate[Store, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a verb that is a single write. If the caller is cancelled before it began, it never runs."""
        self.refuse_closed()
        done = self._loop.create_future()
        pending = self.store.begin(partial(self._finished, done), verb, *args, **kwargs)
        try:
            await asyncio.wait_for(asyncio.shield(done), self.store.wait_seconds)
        except TimeoutError:
            await self._wait_on(pending, done)
        except asyncio.CancelledError:
            self.store.give_up(pending)
            raise
        return pending.result()

    async def read(self, method: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one of the store's methods on a thread, whatever it does there."""
        self.refuse_closed()
        return await self._loop.run_in_executor(self._threads, partial(method, *args, **kwargs))

    async def close(self) -> None:
        """Close the store and let the threads finish what they do."""
        self._closed = True
        await self._loop.run_in_executor(self._threads, self.store.close)
        self._threads.shutdown(wait=False)

    def refuse_closed(self) -> None:
        """Raise once the app is closed."""
        if self._closed:
            raise StoreUnavailable("the app is closed", hint="Open it again.")

    async def _wait_on(self, pending: Pending[T], done: "asyncio.Future[None]") -> None:
        """The verb has not been answered in time: withdraw it, or, if it runs already, wait for its end."""
        error = self.store.give_up(pending)
        if error is not None:
            raise error
        await done

    def _finished(self, done: "asyncio.Future[None]") -> None:
        """Called by the writer's thread. A whole batch of verbs wakes the loop once."""
        self._done.append(done)
        if not self._called:
            self._called = True
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._called = False
        while self._done:
            done = self._done.popleft()
            if not done.done():
                done.set_result(None)
