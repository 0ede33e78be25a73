"""The event stream: one client's view of several sessions and of the session list, as server-sent events.

Replay and live delivery are one loop: read the events after the cursor, send them, wait for a notification. A frame
about stored data has as its id the cursor after it, and no other frame has an id. A client that reconnects with the
last id it received therefore misses nothing and receives nothing twice.
"""

import asyncio
from contextlib import AsyncExitStack

import msgspec
from starlette.types import Receive, Scope, Send

from backstay.clock import Clock, SystemClock
from backstay.errors import BackstayError
from backstay.model.event import Cursor, Event, SessionDeleted
from backstay.model.ids import SessionId
from backstay.runtime.owner_sessions import MultiSubscription
from backstay.server.auth.authenticator import Caller
from backstay.server.server_state import ServerState
from backstay.server.sse.coalesced_reads import Change, EncodedPage
from backstay.server.sse.session_list import first_page
from backstay.server.sse.sse_connection import ClientDisconnected, SseConnection, TokenInvalid
from backstay.server.sse.stream_cursor import StreamPosition, encode, encode_part
from backstay.server.telemetry.logs import log

RETRY_MS = 1_000
WRITE_BYTES = 65_536

_encode = msgspec.json.Encoder().encode


class EventStream:
    """An ASGI response that sends frames until the client disconnects or the server stops."""

    def __init__(
        self, service: ServerState, caller: Caller, place: StreamPosition, *, feed: bool, clock: Clock | None = None
    ) -> None:
        self._service, self._caller, self._feed = service, caller, feed
        self._clock = clock or SystemClock()
        self._cursors = dict(place.sessions)
        self._encoded_positions = {session: encode_part(session, cursor) for session, cursor in self._cursors.items()}
        # Sessions whose last read did not reach the end of the event log.
        self._unread = set(self._cursors)
        self._position, self._change_number = place.feed, -1
        self._connection = SseConnection(service, caller)

    async def check(self) -> None:
        """Raise, before the response starts, unless the caller may read every session and may open another stream."""
        for session, cursor in self._cursors.items():
            await self._service.reads.events(self._caller.owner, session, cursor, -1)
        self._service.streams.admit(self._caller)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with AsyncExitStack() as stack:
            stack.enter_context(self._service.streams.counted(self._caller))
            owned = self._service.app.owned_by(self._caller.owner)
            subscription = stack.enter_context(owned.subscribe(list(self._cursors), everything=self._feed))
            stack.enter_context(self._service.streams.waking(subscription.changed))
            disconnect = await stack.enter_async_context(self._connection.watched(receive, subscription.changed))
            try:
                await self._send_events(send, subscription, disconnect)
            except ClientDisconnected:
                return
            except TokenInvalid:
                pass
            except BackstayError as error:
                # The store failed or was closed. The client can reconnect with the last id and continue.
                log.warning("stream ended early", extra={"error": str(error.args[0])})
            await self._connection.close(send, b": bye\n\n")

    # --- the loop -----------------------------------------------------------------------------------------------------

    async def _send_events(self, send: Send, subscription: MultiSubscription, disconnect: "asyncio.Task[None]") -> None:
        await self._connection.open(send)
        await self._connection.write(send, b"retry: %d\n\n" % RETRY_MS)
        while not self._service.streams.closing:
            if disconnect.done():
                raise ClientDisconnected
            subscription.changed.clear()
            if await self._send_changes(send, subscription) or await self._send_sessions(send, subscription):
                continue
            if not self._cursors and not self._feed:
                return
            await self._connection.wait(send, subscription.changed)

    async def _send_sessions(self, send: Send, subscription: MultiSubscription) -> bool:
        """Send the new events of all sessions. Returns whether there may be more to read at once."""
        for session in list(self._cursors):
            if subscription.must_read(session, self._cursors[session]) or session in self._unread:
                await self._send_session(send, session, subscription.change_of(session))
        return not self._unread.isdisjoint(self._cursors)

    async def _send_session(self, send: Send, session: SessionId, change_number: int) -> None:
        encoded = await self._service.reads.events(self._caller.owner, session, self._cursors[session], change_number)
        (self._unread.add if encoded.page.more else self._unread.discard)(session)
        await self._send_page(send, session, encoded)

    async def _send_page(self, send: Send, session: SessionId, encoded: EncodedPage) -> None:
        """Send a page in writes of bounded size; each waits until the socket has accepted the previous one."""
        batch = Batch()
        if encoded.page.gap is not None and self._cursors[session].number:
            seen = self._cursors[session].number
            batch.add(_frame(encoded.page.gap, _encode({"session": session, "seen": seen})))
        for event, data in zip(encoded.page.events, encoded.events, strict=True):
            self._advance(session, event.cursor)
            batch.add(_frame("event", data, self._cursor()))
            self._count(event)
            if isinstance(event.body, SessionDeleted):
                self._stop_following(session)
            if batch.is_full:
                await self._connection.write(send, batch.take())
        await self._connection.write(send, batch.take())

    async def _send_changes(self, send: Send, subscription: MultiSubscription) -> bool:
        """Send the changed rows of the session list. Returns whether there may be more to read at once."""
        if not self._feed or subscription.changes == self._change_number:
            return False
        change_number = subscription.changes
        position = self._position if self._position is not None else await self._send_snapshot(send)
        found = await self._service.reads.changes(self._caller.owner, position, change_number)
        frames = [self._change(change) for change in found.changes]
        self._position = found.next
        await self._connection.write(send, b"".join(frames))
        self._change_number = self._change_number if found.more else change_number
        return found.more

    def _change(self, change: Change) -> bytes:
        self._position = change.position
        if change.row is None:
            return _frame("unlisted", _encode({"id": change.session}), self._cursor())
        return _frame("listed", change.row, self._cursor())

    async def _send_snapshot(self, send: Send) -> int:
        """Send the first page of the list. Its position was read before its rows, so no change between them is lost."""
        owned = self._service.app.owned_by(self._caller.owner)
        position, page = await first_page(owned)
        self._position = position
        await self._connection.write(send, _frame("snapshot", _encode({"feed": page}), self._cursor()))
        return position

    # --- the cursor ---------------------------------------------------------------------------------------------------

    def _advance(self, session: SessionId, cursor: Cursor) -> None:
        self._cursors[session] = cursor
        self._encoded_positions[session] = encode_part(session, cursor)

    def _stop_following(self, session: SessionId) -> None:
        """Stop following a deleted session. It stays in the cursor, so a client that reconnects gets nothing twice."""
        del self._cursors[session]

    def _cursor(self) -> bytes:
        return encode(self._position, list(self._encoded_positions.values())).encode()

    def _count(self, event: Event) -> None:
        self._service.metrics.events.add()
        self._service.metrics.lag.observe(max(0, self._clock.now() - event.at) / 1000)


class Batch:
    """Frames that are sent in one write."""

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._size = 0

    @property
    def is_full(self) -> bool:
        return self._size >= WRITE_BYTES

    def add(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._size += len(frame)

    def take(self) -> bytes:
        """Return the frames so far and start an empty batch."""
        taken = b"".join(self._frames)
        self._frames, self._size = [], 0
        return taken


def _frame(name: str, data: bytes, cursor: bytes | None = None) -> bytes:
    """Encode one server-sent event. JSON contains no raw line breaks, so `data` is always one line."""
    head = b"" if cursor is None else b"id: %s\n" % cursor
    return b"%sevent: %s\ndata: %s\n\n" % (head, name.encode(), data)
