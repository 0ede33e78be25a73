"""A client of a server: the methods of an app, over HTTP."""

import warnings
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import BinaryIO, Literal, Self, TypeVar, Unpack

from backstay.client import api_calls, file_transfer
from backstay.client.api_call import ApiCall
from backstay.client.client_schedules import ClientSchedules
from backstay.client.event_follower import StreamState, stream_session
from backstay.client.feed_follower import follow_feed
from backstay.client.server_connection import Connection
from backstay.client.session_client import SessionClient, turn_client
from backstay.client.turn_client import TurnClient
from backstay.errors import ConfigError, StoreUnavailable
from backstay.model.addresses.address import Address
from backstay.model.content import Attachment, Content
from backstay.model.documents.document import Export, Imported
from backstay.model.event import Cursor, Event, FeedEvent
from backstay.model.files.file_source import FileSource
from backstay.model.ids import SessionId, TurnId
from backstay.model.limits import READ_LIMIT
from backstay.model.search.results import SearchPage
from backstay.model.session import Resolved, SessionCursor, SessionFilter, SessionInfo, SessionPage, Ttl
from backstay.model.turn import SEND_DEFAULTS, SendOptions
from backstay.signatures import with_options

T = TypeVar("T")

_ANY = SessionFilter()


def connect(url: str, *, token: str, timeout: float = 60.0, retry_seconds: float = 30.0) -> "Client":
    """Connect to a server, to be used with `async with`. The client has the methods of an app, for the token's owner.

    The token is sent to this server only, and redirects are not followed. A request that may be repeated is sent again
    while the server does not answer: every read, every request that has a request id, and every change that has the
    same effect twice. A message without a request id gets one.

    Args:
        url: The address of the server, such as `https://backstay.example.com`.
        token: A token of the server, as `backstay tokens add` prints it.
        timeout: How many seconds of silence end a request.
        retry_seconds: For how long a request is repeated while the server does not answer.

    Returns:
        The client.

    Raises:
        ConfigError: An argument is not valid.
    """
    return Client(url, token=token, timeout=timeout, retry_seconds=retry_seconds)


class Client(ClientSchedules):
    """The sessions of one owner on a server. Its methods are those of `App`; each is described there.

    Args:
        url: The address of the server.
        token: A token of the server.
        timeout: How many seconds of silence end a request.
        retry_seconds: For how long a request is repeated while the server does not answer.
    """

    def __init__(self, url: str, *, token: str, timeout: float, retry_seconds: float) -> None:
        self._connecting = Connection(url, token, timeout=timeout, retry_seconds=retry_seconds)
        self._owner: str | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        if self._closed or self._owner is not None:
            raise ConfigError("the client was opened before", hint="Connect again.")
        try:
            self._owner = (await self._connecting.run(api_calls.me())).owner
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Turns on the server run on."""
        self._closed = True
        await self._connecting.close()

    def __del__(self) -> None:
        if getattr(self, "_owner", None) is not None and not self._closed:
            warnings.warn(
                "a client was dropped while open; use `async with backstay.connect(…) as app:`",
                ResourceWarning,
                stacklevel=1,
                source=self,
            )

    @property
    def url(self) -> str:
        """The address of the server."""
        return str(self._connecting.base)

    @property
    def owner(self) -> str:
        """The owner of the sessions: the one of the token."""
        if self._owner is None:
            self._connection  # noqa: B018  # raises
        return self._owner or ""

    @property
    def _connection(self) -> Connection:
        if self._owner is None or self._closed:
            raise StoreUnavailable(
                "the client is not open", hint="Use it inside `async with backstay.connect(…) as app:`."
            )
        return self._connecting

    async def run(self, call: ApiCall[T]) -> T:
        """Send one operation of the HTTP API.

        Args:
            call: A value that a function of `backstay.client.api_calls` made.

        Returns:
            The answer.

        Raises:
            StoreUnavailable: The server does not answer.
            BackstayError: The server rejected the call.
        """
        return await self._connection.run(call)

    def handle(self, session: SessionId, *, agent: str = "default") -> SessionClient:
        """The handle of a session, without reading it; see `App.handle`."""
        return SessionClient(self._connection, self.owner, session, agent)

    async def stream(self, session: SessionId, after: Cursor | int = 0) -> AsyncGenerator[Event | StreamState, None]:
        """Follow a session as `Session.follow` does, and learn when the connection is lost and open again.

        Args:
            session: The id of the session.
            after: The cursor after the last event that was read, or its number; 0: from the beginning.

        Yields:
            The events in order, and a `StreamState` each time that the stream is open or lost.

        Raises:
            NotFound: The owner has no such session.
            HistoryChanged: A crash of the database lost the event `after`.
        """
        async with aclosing(stream_session(self._connection, session, after)) as events:
            async for event in events:
                yield event

    async def session(
        self, which: Address | SessionId | None = None, *, ttl: Ttl | None = None, agent: str = "default"
    ) -> SessionClient:
        """Open a session: the one behind an address, the one with an id, or a new one; see `App.session`."""
        if isinstance(which, Address):
            found = (await self.resolve(which, ttl=ttl)).session
        elif which is None:
            found = await self._connection.run(api_calls.create(ttl))
        else:
            found = await self._connection.run(api_calls.session(which))
        return self.handle(found.id, agent=agent)

    async def resolve(self, address: Address, *, ttl: Ttl | None = None) -> Resolved:
        """Find the session of an address, or create it, and report which of the two happened; see `App.resolve`."""
        return await self._connection.run(api_calls.resolve(address, ttl))

    async def at(self, address: Address) -> SessionInfo:
        """Find the session that an address leads to; see `App.at`."""
        return (await self._connection.run(api_calls.at(address))).sessions[0]

    async def beginning_with(self, prefix: str, *, limit: int = 20) -> tuple[SessionInfo, ...]:
        """Find sessions by the first letters of their ids; see `App.beginning_with`."""
        return (await self._connection.run(api_calls.beginning_with(prefix, limit))).sessions

    @with_options(SEND_DEFAULTS)
    async def send(
        self, to: Address | SessionId | Literal["new"], content: Content, **options: Unpack[SendOptions]
    ) -> TurnClient:
        """Send a message to a session, to an address or to a new session; see `App.send`."""
        call = api_calls.send(to, content, **options)
        return TurnClient(self._connection, await self._connection.run(call))

    async def upload(self, file: FileSource, *, name: str | None = None, media_type: str | None = None) -> Attachment:
        """Upload a file; see `App.upload`."""
        return await file_transfer.upload(self._connection, file, name, media_type)

    async def download(self, attachment: Attachment, *, limit: int = READ_LIMIT) -> bytes:
        """Read the bytes of an attachment; see `App.download`."""
        return await file_transfer.download(self._connection, attachment, limit)

    async def turn(self, turn: TurnId) -> TurnClient:
        """Open a turn that was accepted before; see `App.turn`."""
        return turn_client(self._connection, await self._connection.run(api_calls.turn(turn)))

    async def resume(self, turn: TurnId) -> TurnClient:
        """Continue an interrupted turn on the server; see `App.resume`."""
        return TurnClient(self._connection, await self._connection.run(api_calls.resume(turn)))

    async def sessions(
        self, filter: SessionFilter = _ANY, *, after: SessionCursor | None = None, limit: int = 50
    ) -> SessionPage:
        """Read a page of sessions; see `App.sessions`."""
        page = await self._connection.run(api_calls.sessions(filter, after, limit))
        moment, _, last = (page.next or "").partition(".")
        following = SessionCursor(active_at=int(moment), id=SessionId(last)) if page.next else None
        return SessionPage(sessions=page.sessions, next=following)

    async def search(
        self, text: str, *, filter: SessionFilter = _ANY, session: SessionId | None = None, limit: int = 20
    ) -> SearchPage:
        """Find messages; see `App.search`."""
        return await self._connection.run(api_calls.search(text, filter, session, limit))

    async def follow(self, after: int | None = None) -> AsyncGenerator[FeedEvent, None]:
        """Follow the events of all sessions; see `App.follow`. A cut connection is opened again, without end."""
        async with aclosing(follow_feed(self._connection, after)) as events:
            async for event in events:
                yield event

    async def import_session(
        self, export: Export | bytes | BinaryIO, *, new_ids: bool = False, addresses: bool = False
    ) -> Imported:
        """Import a session; see `App.import_session`. A server always makes new ids, so `new_ids` changes nothing."""
        return await file_transfer.import_session(self._connection, export, addresses=addresses)
