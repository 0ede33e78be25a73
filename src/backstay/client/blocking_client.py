"""The blocking client, for scripts and notebooks: every method waits for its result.

The methods of these classes are generated from those of the async handles, so both have the same names and parameters.
"""

import warnings
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

from backstay.client.client import Client, connect
from backstay.client.session_client import SessionClient
from backstay.client.turn_client import TurnClient
from backstay.concurrency.blocking_handle import BlockingHandle, Portal, iterates, named_like, waits
from backstay.model.ids import SessionId, TurnId
from backstay.model.turn import TurnState

P = ParamSpec("P")
H = TypeVar("H")


def _opens_turn(
    method: Callable[Concatenate[H, P], Coroutine[object, object, TurnClient]],
) -> Callable[Concatenate[BlockingHandle[H], P], "BlockingTurnClient"]:
    """Make a method that waits for this one and returns the blocking form of its turn."""

    def open_handle(self: BlockingHandle[H], /, *args: P.args, **kwargs: P.kwargs) -> "BlockingTurnClient":
        return BlockingTurnClient(self._portal, self._portal.wait(method(self._handle, *args, **kwargs)))

    return named_like(method, open_handle, returns="BlockingTurnClient")


def _opens_session(
    method: Callable[Concatenate[H, P], Coroutine[object, object, SessionClient]],
) -> Callable[Concatenate[BlockingHandle[H], P], "BlockingSessionClient"]:
    """Make a method that waits for this one and returns the blocking form of its session."""

    def open_handle(self: BlockingHandle[H], /, *args: P.args, **kwargs: P.kwargs) -> "BlockingSessionClient":
        return BlockingSessionClient(self._portal, self._portal.wait(method(self._handle, *args, **kwargs)))

    return named_like(method, open_handle, returns="BlockingSessionClient")


class BlockingTurnClient(BlockingHandle[TurnClient]):
    """A turn that a server accepted."""

    @property
    def id(self) -> TurnId:
        """The turn's id."""
        return self._handle.id

    @property
    def session(self) -> SessionId:
        """The session of the turn: another one than requested if the message was sent to a fork."""
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

    read = waits(TurnClient.read)
    events = iterates(TurnClient.events)
    outcome = waits(TurnClient.outcome)
    cancel = waits(TurnClient.cancel)
    edit = waits(TurnClient.edit)
    withdraw = waits(TurnClient.withdraw)
    release = waits(TurnClient.release)
    resume = _opens_turn(TurnClient.resume)
    calls = waits(TurnClient.calls)
    approve = waits(TurnClient.approve)
    deny = waits(TurnClient.deny)


class BlockingSessionClient(BlockingHandle[SessionClient]):
    """One session of a server."""

    @property
    def id(self) -> SessionId:
        """The session's id."""
        return self._handle.id

    @property
    def owner(self) -> str:
        """The session's owner."""
        return self._handle.owner

    send = _opens_turn(SessionClient.send)
    steer = _opens_turn(SessionClient.steer)
    record = waits(SessionClient.record)
    upload = waits(SessionClient.upload)
    download = waits(SessionClient.download)
    retry = _opens_turn(SessionClient.retry)
    edit = _opens_turn(SessionClient.edit)
    resume = _opens_turn(SessionClient.resume)
    turn = _opens_turn(SessionClient.turn)
    waiting = waits(SessionClient.waiting)
    reorder = waits(SessionClient.reorder)
    read = waits(SessionClient.read)
    messages = waits(SessionClient.messages)
    lineage = waits(SessionClient.lineage)
    addresses = waits(SessionClient.addresses)
    marks = waits(SessionClient.marks)
    save_draft = waits(SessionClient.save_draft)
    mark_read = waits(SessionClient.mark_read)
    export = waits(SessionClient.export)
    export_to = waits(SessionClient.export_to)
    follow = iterates(SessionClient.follow)
    undo = waits(SessionClient.undo)
    redo = waits(SessionClient.redo)
    compact = waits(SessionClient.compact)
    fork = _opens_session(SessionClient.fork)
    rename = waits(SessionClient.rename)
    pin = waits(SessionClient.pin)
    archive = waits(SessionClient.archive)
    tag = waits(SessionClient.tag)
    update = waits(SessionClient.update)
    point = waits(SessionClient.point)
    end = waits(SessionClient.end)
    delete = waits(SessionClient.delete)


class BlockingClient(BlockingHandle[Client]):
    """The sessions of one owner on a server.

    Args:
        client: The async client whose methods it waits for.
    """

    def __init__(self, client: Client) -> None:
        super().__init__(None, client)

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
                "a client was dropped while open; use `with backstay.connect_blocking(…) as app:`",
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
    def url(self) -> str:
        """The address of the server."""
        return self._handle.url

    @property
    def owner(self) -> str:
        """The owner of the sessions: the one of the token."""
        return self._handle.owner

    def handle(self, session: SessionId, *, agent: str = "default") -> BlockingSessionClient:
        """The handle of a session, without reading it; see `App.handle`."""
        return BlockingSessionClient(self._portal, self._handle.handle(session, agent=agent))

    run = waits(Client.run)
    stream = iterates(Client.stream)
    session = _opens_session(Client.session)
    resolve = waits(Client.resolve)
    at = waits(Client.at)
    beginning_with = waits(Client.beginning_with)
    send = _opens_turn(Client.send)
    upload = waits(Client.upload)
    download = waits(Client.download)
    turn = _opens_turn(Client.turn)
    resume = _opens_turn(Client.resume)
    sessions = waits(Client.sessions)
    search = waits(Client.search)
    follow = iterates(Client.follow)
    import_session = waits(Client.import_session)
    create_schedule = waits(Client.create_schedule)
    schedules = waits(Client.schedules)
    schedule = waits(Client.schedule)
    schedule_log = waits(Client.schedule_log)
    pause_schedule = waits(Client.pause_schedule)
    resume_schedule = waits(Client.resume_schedule)
    skip_schedule = waits(Client.skip_schedule)
    run_schedule = waits(Client.run_schedule)
    delete_schedule = waits(Client.delete_schedule)


def _blocking(connecting: Callable[P, Client]) -> Callable[P, BlockingClient]:
    def connect_blocking(*args: P.args, **kwargs: P.kwargs) -> BlockingClient:
        return BlockingClient(connecting(*args, **kwargs))

    named = named_like(connecting, connect_blocking, returns=BlockingClient)
    named.__name__ = named.__qualname__ = "connect_blocking"
    rest = (connecting.__doc__ or "").partition("\n")
    named.__doc__ = "The client of `backstay.connect`, to be used with a plain `with`." + rest[1] + rest[2]
    return named


connect_blocking = _blocking(connect)
