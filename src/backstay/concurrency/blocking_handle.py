"""Blocking forms of async handles: each method waits for its result, on an event loop in a thread of its own."""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from types import GenericAlias
from typing import Concatenate, Generic, ParamSpec, TypeVar, get_args

from backstay.concurrency.ctrl_c import with_ctrl_c_held
from backstay.concurrency.loop_bridge import LoopBridge
from backstay.errors import StoreUnavailable

P = ParamSpec("P")
T = TypeVar("T")
H = TypeVar("H")
H_co = TypeVar("H_co", covariant=True)

UNRESPONSIVE_SECONDS = 2.0


class Portal:
    """Runs coroutines of any thread on an event loop that has a thread of its own."""

    def __init__(self) -> None:
        # A loop that Ctrl-C interrupts while it is made would warn, when it is collected, that it was not closed.
        self._loop = with_ctrl_c_held(asyncio.new_event_loop)
        self._bridge = LoopBridge(self._loop)
        self._closed = False
        self._calls = 0
        self._condition = threading.Condition()
        self._thread = threading.Thread(target=self._loop.run_forever, name="backstay-loop", daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine on the loop and wait for it; Ctrl-C cancels it.

        Raises:
            StoreUnavailable: The app is closed.
            UsedAfterFork: This is a forked child process.
        """
        if self.forked:
            return self._bridge.wait(work)  # Raises. The condition may be locked forever in a forked child.
        try:
            self._begin_call()
        except StoreUnavailable:
            work.close()
            raise
        try:
            return self._bridge.wait(work)
        except CancelledError:
            self._require_open()
            raise
        finally:
            self._end_call()

    @property
    def forked(self) -> bool:
        """Whether this is a forked child of the process that opened it: there is no loop to wait for or to close."""
        return self._bridge.forked

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items of an async iterator, one by one."""
        steps = _Steps(items)
        try:
            while True:
                try:
                    yield self.wait(steps.next())
                except StopAsyncIteration:
                    return
        finally:
            # A closed portal has already ended the step under way; a forked one never began a step.
            if not (self._closed or self.forked):
                self.wait(steps.close())

    def close(self) -> None:
        """Cancel the coroutines under way, then stop the loop and its thread."""
        if self._closed or self.forked:
            return
        with self._condition:
            self._closed = True
        unresponsive = self._bridge.wait(self._end_all()) or not self._wait_for_calls()
        if not unresponsive:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _begin_call(self) -> None:
        """Count a waiting thread: the loop does not stop before it has its answer."""
        with self._condition:
            self._require_open()
            self._calls += 1

    def _end_call(self) -> None:
        with self._condition:
            self._calls -= 1
            self._condition.notify_all()

    def _wait_for_calls(self) -> bool:
        """Wait for the threads that began a call before the app was closed; each gets `StoreUnavailable`."""
        with self._condition:
            return self._condition.wait_for(lambda: not self._calls, UNRESPONSIVE_SECONDS)

    def _require_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the app is closed", hint="Open it again.")

    async def _end_all(self) -> bool:
        """Cancel every task; returns whether one ignores it. The loop then runs on: its thread is a daemon."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            _, unresponsive = await asyncio.wait(others, timeout=UNRESPONSIVE_SECONDS)
            if unresponsive:
                return True
        await self._loop.shutdown_asyncgens()
        return False


class _Steps(Generic[T]):
    """Reads an async iterator step by step, and closes it after the last step."""

    def __init__(self, items: AsyncIterator[T]) -> None:
        self._items = items
        self._task: asyncio.Task[object] | None = None

    async def next(self) -> T:
        """The next item."""
        self._task = asyncio.current_task()
        return await anext(self._items)

    async def close(self) -> None:
        """Close the iterator, after a step that Ctrl-C cancelled has ended. A step that ignores it is abandoned."""
        if self._task is not None:
            _, unresponsive = await asyncio.wait({self._task}, timeout=UNRESPONSIVE_SECONDS)
            if unresponsive:
                return
        close = getattr(self._items, "aclose", None)
        if close is not None:
            await close()


class BlockingHandle(Generic[H_co]):
    """The blocking form of an async handle."""

    def __init__(self, portal: Portal | None, handle: H_co) -> None:
        self._opened, self._handle = portal, handle

    @property
    def _portal(self) -> Portal:
        if self._opened is None:
            raise StoreUnavailable("the app is not open", hint="Use it inside a `with` block.")
        return self._opened


def waits(
    method: Callable[Concatenate[H, P], Coroutine[object, object, T]],
) -> Callable[Concatenate[BlockingHandle[H], P], T]:
    """Make a method that waits for the result of this one."""

    def wait(self: BlockingHandle[H], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal.wait(method(self._handle, *args, **kwargs))

    return named_like(method, wait)


def iterates(
    method: Callable[Concatenate[H, P], AsyncIterator[T]],
) -> Callable[Concatenate[BlockingHandle[H], P], Iterator[T]]:
    """Make a method that waits for each item of this one."""

    def iterate(self: BlockingHandle[H], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._portal.iterate(method(self._handle, *args, **kwargs))

    item = get_args(inspect.signature(method).return_annotation)[0]
    return named_like(method, iterate, returns=GenericAlias(Iterator, item))


def named_like(
    method: Callable[..., object], blocking: Callable[P, T], *, returns: object = inspect.Signature.empty
) -> Callable[P, T]:
    """The blocking function with the name, parameters and docstring of the async one."""
    signature = inspect.signature(method)
    if returns is not inspect.Signature.empty:
        signature = signature.replace(return_annotation=returns)
    blocking.__name__, blocking.__doc__ = method.__name__, method.__doc__
    blocking.__qualname__ = f"Blocking.{method.__name__}"
    blocking.__signature__ = signature  # type: ignore[attr-defined]  # read by `inspect`
    return blocking
