"""The blocking app, for scripts and notebooks: every method waits for its result.

The methods of these classes are generated from those of the async handles, so both have the same names and parameters.
"""

import asyncio
import inspect
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from types import GenericAlias, TracebackType
from typing import Concatenate, Generic, ParamSpec, Self, TypeVar, get_args

from backstay.concurrency.ctrl_c import with_ctrl_c_held
from backstay.concurrency.loop_bridge import LoopBridge
from backstay.errors import StoreUnavailable
from backstay.model.ids import SessionId, TurnId
from backstay.model.limits import Limits
from backstay.runtime.app import App, open_app
from backstay.runtime.session_handle import Session
from backstay.runtime.turn_handle import Turn
from backstay.runtime.turns.agent_pool import Pool, PoolStatistics

P = ParamSpec("P")
T = TypeVar("T")
H = TypeVar("H")
H_co = TypeVar("H_co", covariant=True)

STUBBORN_SECONDS = 2.0


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
            return self._bridge.wait(work)  # Raises. The condition may be locked for ever in a forked child.
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
        stubborn = self._bridge.wait(self._end_all()) or not self._wait_for_calls()
        if not stubborn:
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
            return self._condition.wait_for(lambda: not self._calls, STUBBORN_SECONDS)

    def _require_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the app is closed", hint="Open it again.")

    async def _end_all(self) -> bool:
        """Cancel every task; returns whether one ignores it. The loop then runs on: its thread is a daemon."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            _, stubborn = await asyncio.wait(others, timeout=STUBBORN_SECONDS)
            if stubborn:
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
            _, stubborn = await asyncio.wait({self._task}, timeout=STUBBORN_SECONDS)
            if stubborn:
                return
        close = getattr(self._items, "aclose", None)
        if close is not None:
            await close()


class _Blocking(Generic[H_co]):
    """The blocking form of an async handle."""

    def __init__(self, portal: Portal | None, handle: H_co) -> None:
        self._opened, self._handle = portal, handle

    @property
    def _portal(self) -> Portal:
        if self._opened is None:
            raise StoreUnavailable(
                "the app is not open", hint="Use it inside `with backstay.open_blocking(…) as app:`."
            )
        return self._opened


def _waits(
    method: Callable[Concatenate[H, P], Coroutine[object, object, T]],
) -> Callable[Concatenate[_Blocking[H], P], T]:
    """Make a method that waits for the result of this one."""

    def wait(self: _Blocking[H], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal.wait(method(self._handle, *args, **kwargs))

    return _named_like(method, wait)


def _iterates(
    method: Callable[Concatenate[H, P], AsyncIterator[T]],
) -> Callable[Concatenate[_Blocking[H], P], Iterator[T]]:
    """Make a method that waits for each item of this one."""

    def iterate(self: _Blocking[H], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._portal.iterate(method(self._handle, *args, **kwargs))

    item = get_args(inspect.signature(method).return_annotation)[0]
    return _named_like(method, iterate, returns=GenericAlias(Iterator, item))


def _opens_turn(
    method: Callable[Concatenate[H, P], Coroutine[object, object, Turn]],
) -> Callable[Concatenate[_Blocking[H], P], "BlockingTurn"]:
    """Make a method that waits for this one and returns the blocking form of its turn."""

    def open_handle(self: _Blocking[H], /, *args: P.args, **kwargs: P.kwargs) -> "BlockingTurn":
        return BlockingTurn(self._portal, self._portal.wait(method(self._handle, *args, **kwargs)))

    return _named_like(method, open_handle, returns="BlockingTurn")


def _opens_session(
    method: Callable[Concatenate[H, P], Coroutine[object, object, Session]],
) -> Callable[Concatenate[_Blocking[H], P], "BlockingSession"]:
    """Make a method that waits for this one and returns the blocking form of its session."""

    def open_handle(self: _Blocking[H], /, *args: P.args, **kwargs: P.kwargs) -> "BlockingSession":
        return BlockingSession(self._portal, self._portal.wait(method(self._handle, *args, **kwargs)))

    return _named_like(method, open_handle, returns="BlockingSession")


def _named_like(
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


class BlockingTurn(_Blocking[Turn]):
    """A turn that was accepted."""

    @property
    def id(self) -> TurnId:
        """The turn's id."""
        return self._handle.id

    @property
    def session(self) -> SessionId:
        """The session it belongs to: another one than asked for, if it was sent to a fork."""
        return self._handle.session

    @property
    def repeated(self) -> bool:
        """Whether this request had been accepted before."""
        return self._handle.repeated

    @property
    def forked_from(self) -> SessionId | None:
        """The busy session that it was forked from, with `if_busy="fork"`."""
        return self._handle.forked_from

    read = _waits(Turn.read)
    events = _iterates(Turn.events)
    outcome = _waits(Turn.outcome)
    cancel = _waits(Turn.cancel)
    release = _waits(Turn.release)
    calls = _waits(Turn.calls)
    approve = _waits(Turn.approve)
    deny = _waits(Turn.deny)


class BlockingSession(_Blocking[Session]):
    """One session: send to it, read it, go back in it."""

    @property
    def id(self) -> SessionId:
        """The session's id."""
        return self._handle.id

    @property
    def owner(self) -> str:
        """The session's owner."""
        return self._handle.owner

    send = _opens_turn(Session.send)
    steer = _opens_turn(Session.steer)
    record = _waits(Session.record)
    retry = _opens_turn(Session.retry)
    edit = _opens_turn(Session.edit)
    turn = _opens_turn(Session.turn)
    waiting = _waits(Session.waiting)
    read = _waits(Session.read)
    messages = _waits(Session.messages)
    lineage = _waits(Session.lineage)
    export = _waits(Session.export)
    export_to = _waits(Session.export_to)
    follow = _iterates(Session.follow)
    undo = _waits(Session.undo)
    redo = _waits(Session.redo)
    compact = _waits(Session.compact)
    fork = _opens_session(Session.fork)
    rename = _waits(Session.rename)
    pin = _waits(Session.pin)
    archive = _waits(Session.archive)
    tag = _waits(Session.tag)
    end = _waits(Session.end)
    delete = _waits(Session.delete)


class BlockingPool(_Blocking[Pool]):
    """The live agents that are kept between turns. Its methods run on the loop, which alone may close an agent."""

    @property
    def statistics(self) -> PoolStatistics:
        """The current counts."""
        return self._portal.wait(_result_of(lambda: self._handle.statistics))

    def trim(self, keep: int = 0) -> int:
        """Close unused agents, the least recently used first, until so many are kept; returns how many were closed."""
        return self._portal.wait(_result_of(lambda: self._handle.trim(keep)))

    def expire(self) -> int:
        """Close agents that were idle for too long; returns how many."""
        return self._portal.wait(_result_of(self._handle.expire))


async def _result_of(work: Callable[[], T]) -> T:
    return work()


class BlockingApp(_Blocking[App]):
    """Sessions and the agents that answer in them."""

    def __init__(self, app: App) -> None:
        super().__init__(None, app)

    def __enter__(self) -> Self:
        portal = Portal()
        try:
            portal.wait(self._handle.__aenter__())
        except BaseException:
            portal.close()
            raise
        self._opened = portal
        return self

    def __del__(self) -> None:
        portal = getattr(self, "_opened", None)
        if portal is not None and not portal.forked:
            warnings.warn(
                "an app was dropped while open; use `with backstay.open_blocking(…) as app:`",
                ResourceWarning,
                stacklevel=1,
                source=self,
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        portal, self._opened = self._opened, None
        if portal is not None and not portal.forked:
            portal.wait(self._handle.close())
            portal.close()

    @property
    def owner(self) -> str:
        """The owner of the sessions."""
        return self._handle.owner

    @property
    def limits(self) -> Limits:
        """The limits for names, messages and attachments."""
        return self._handle.limits

    @property
    def host(self) -> str:
        """The host of workspace addresses that name none."""
        return self._handle.host

    @property
    def pool(self) -> BlockingPool:
        """The live agents that are kept between turns."""
        return BlockingPool(self._portal, self._handle.pool)

    @property
    def abandoned(self) -> int:
        """How many agents, tools and titlers ignored their cancellation and were abandoned."""
        return self._handle.abandoned

    session = _opens_session(App.session)
    send = _opens_turn(App.send)
    turn = _opens_turn(App.turn)
    resume = _opens_turn(App.resume)
    sessions = _waits(App.sessions)
    search = _waits(App.search)
    follow = _iterates(App.follow)
    import_session = _waits(App.import_session)
    load = _waits(App.load)
    tidy = _waits(App.tidy)


def _blocking(opening: Callable[P, App]) -> Callable[P, BlockingApp]:
    def open_blocking(*args: P.args, **kwargs: P.kwargs) -> BlockingApp:
        return BlockingApp(opening(*args, **kwargs))

    named = _named_like(opening, open_blocking, returns=BlockingApp)
    named.__name__ = named.__qualname__ = "open_blocking"
    named.__doc__ = "The app of `backstay.open`, to be used with a plain `with`." + _rest(opening.__doc__)
    return named


def _rest(doc: str | None) -> str:
    """A docstring without its first line."""
    return (doc or "").partition("\n")[1] + (doc or "").partition("\n")[2]


open_blocking = _blocking(open_app)
