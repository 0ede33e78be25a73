"""The blocking app, for scripts and notebooks: every method waits for its result.

The methods of these classes are generated from those of the async handles, so both have the same names and parameters.
"""

import warnings
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

from backstay.concurrency.blocking_handle import BlockingHandle, Portal, iterates, named_like, waits
from backstay.model.ids import SessionId, TurnId
from backstay.model.limits import Limits
from backstay.model.turn import TurnState
from backstay.runtime.app import App, open_app
from backstay.runtime.session_handle import Session
from backstay.runtime.turn_handle import Turn
from backstay.runtime.turns.agent_pool import Pool, PoolStatistics

P = ParamSpec("P")
T = TypeVar("T")
H = TypeVar("H")


def _opens_turn(
    method: Callable[Concatenate[H, P], Coroutine[object, object, Turn]],
) -> Callable[Concatenate[BlockingHandle[H], P], "BlockingTurn"]:
    """Make a method that waits for this one and returns the blocking form of its turn."""

    def open_handle(self: BlockingHandle[H], /, *args: P.args, **kwargs: P.kwargs) -> "BlockingTurn":
        return BlockingTurn(self._portal, self._portal.wait(method(self._handle, *args, **kwargs)))

    return named_like(method, open_handle, returns="BlockingTurn")


def _opens_session(
    method: Callable[Concatenate[H, P], Coroutine[object, object, Session]],
) -> Callable[Concatenate[BlockingHandle[H], P], "BlockingSession"]:
    """Make a method that waits for this one and returns the blocking form of its session."""

    def open_handle(self: BlockingHandle[H], /, *args: P.args, **kwargs: P.kwargs) -> "BlockingSession":
        return BlockingSession(self._portal, self._portal.wait(method(self._handle, *args, **kwargs)))

    return named_like(method, open_handle, returns="BlockingSession")


class BlockingTurn(BlockingHandle[Turn]):
    """A turn that was accepted."""

    @property
    def id(self) -> TurnId:
        """The turn's id."""
        return self._handle.id

    @property
    def session(self) -> SessionId:
        """The session of the turn. If the message was sent to a fork, this is the fork."""
        return self._handle.session

    @property
    def repeated(self) -> bool:
        """Whether this request had been accepted before."""
        return self._handle.repeated

    @property
    def forked_from(self) -> SessionId | None:
        """The busy session that it was forked from, with `if_busy="fork"`."""
        return self._handle.forked_from

    @property
    def accepted_state(self) -> TurnState:
        """Whether it was running or waiting when this handle was made; `read` returns its present state."""
        return self._handle.accepted_state

    @property
    def first_event(self) -> int:
        """The number of the first event of the turn."""
        return self._handle.first_event

    read = waits(Turn.read)
    events = iterates(Turn.events)
    outcome = waits(Turn.outcome)
    cancel = waits(Turn.cancel)
    edit = waits(Turn.edit)
    withdraw = waits(Turn.withdraw)
    release = waits(Turn.release)
    resume = _opens_turn(Turn.resume)
    calls = waits(Turn.calls)
    approve = waits(Turn.approve)
    deny = waits(Turn.deny)


class BlockingSession(BlockingHandle[Session]):
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
    record = waits(Session.record)
    upload = waits(Session.upload)
    download = waits(Session.download)
    retry = _opens_turn(Session.retry)
    edit = _opens_turn(Session.edit)
    resume = _opens_turn(Session.resume)
    turn = _opens_turn(Session.turn)
    waiting = waits(Session.waiting)
    reorder = waits(Session.reorder)
    read = waits(Session.read)
    messages = waits(Session.messages)
    lineage = waits(Session.lineage)
    addresses = waits(Session.addresses)
    marks = waits(Session.marks)
    save_draft = waits(Session.save_draft)
    mark_read = waits(Session.mark_read)
    export = waits(Session.export)
    export_to = waits(Session.export_to)
    follow = iterates(Session.follow)
    undo = waits(Session.undo)
    redo = waits(Session.redo)
    compact = waits(Session.compact)
    fork = _opens_session(Session.fork)
    rename = waits(Session.rename)
    pin = waits(Session.pin)
    archive = waits(Session.archive)
    tag = waits(Session.tag)
    update = waits(Session.update)
    point = waits(Session.point)
    end = waits(Session.end)
    delete = waits(Session.delete)


class BlockingPool(BlockingHandle[Pool]):
    """The live agents that are kept between turns. Its methods run on the loop, which alone may close an agent."""

    @property
    def statistics(self) -> PoolStatistics:
        """The current counts."""
        return self._portal.wait(_result_of(lambda: self._handle.statistics))

    def trim(self, keep: int = 0) -> int:
        """Close unused agents, least recently used first, until at most `keep` are left. Returns the number closed."""
        return self._portal.wait(_result_of(lambda: self._handle.trim(keep)))

    def expire(self) -> int:
        """Close agents that were idle for too long; returns how many."""
        return self._portal.wait(_result_of(self._handle.expire))


async def _result_of(work: Callable[[], T]) -> T:
    return work()


class BlockingApp(BlockingHandle[App]):
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
    resolve = waits(App.resolve)
    at = waits(App.at)
    beginning_with = waits(App.beginning_with)
    send = _opens_turn(App.send)
    upload = waits(App.upload)
    download = waits(App.download)
    turn = _opens_turn(App.turn)
    resume = _opens_turn(App.resume)
    sessions = waits(App.sessions)
    search = waits(App.search)
    follow = iterates(App.follow)
    import_session = waits(App.import_session)
    create_schedule = waits(App.create_schedule)
    schedules = waits(App.schedules)
    schedule = waits(App.schedule)
    schedule_log = waits(App.schedule_log)
    pause_schedule = waits(App.pause_schedule)
    resume_schedule = waits(App.resume_schedule)
    skip_schedule = waits(App.skip_schedule)
    run_schedule = waits(App.run_schedule)
    delete_schedule = waits(App.delete_schedule)
    load = waits(App.load)
    run_upkeep = waits(App.run_upkeep)


def _blocking(opening: Callable[P, App]) -> Callable[P, BlockingApp]:
    def open_blocking(*args: P.args, **kwargs: P.kwargs) -> BlockingApp:
        return BlockingApp(opening(*args, **kwargs))

    named = named_like(opening, open_blocking, returns=BlockingApp)
    named.__name__ = named.__qualname__ = "open_blocking"
    named.__doc__ = "The app of `backstay.open`, to be used with a plain `with`." + _rest(opening.__doc__)
    return named


def _rest(doc: str | None) -> str:
    """A docstring without its first line."""
    return (doc or "").partition("\n")[1] + (doc or "").partition("\n")[2]


open_blocking = _blocking(open_app)
