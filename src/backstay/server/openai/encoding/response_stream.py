"""Streams one turn in the format of the OpenAI-compatible API, from its beginning or after a given event.

Events are always read from the first of the turn, so any process can resume a stream from the log alone.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Protocol

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from backstay.errors import BackstayError
from backstay.model.event import UNSEEN, Cursor, Event, SessionDeleted
from backstay.model.turn import TurnInfo
from backstay.runtime.owner_sessions import MultiSubscription
from backstay.runtime.turn_handle import Turn
from backstay.server.auth.authenticator import Caller
from backstay.server.http.api_request import ApiRequest, B, Q
from backstay.server.openai.encoding.items import Value
from backstay.server.openai.encoding.response_encoder import ResponseEncoder
from backstay.server.server_state import ServerState
from backstay.server.sse.sse_connection import ClientDisconnected, SseConnection, TokenInvalid
from backstay.server.telemetry.logs import log
from backstay.store import commands

SESSION_HEADER = "x-session-id"
WRITE_BYTES = 65_536

encode = msgspec.json.Encoder().encode


class TurnEncoder(Protocol):
    """Encodes the events of a turn as frames."""

    @property
    def over(self) -> bool:
        """Whether the turn has ended, so that no more frames follow."""
        ...

    def encode_event(self, event: Event) -> bytes:
        """Encode one event; it may give any number of frames."""
        ...

    def closing_frames(self) -> bytes:
        """The frames that close a complete stream."""
        ...


class ResponseStreamEncoder:
    """Encodes the events of a response with a number greater than `after`."""

    def __init__(self, turn: TurnInfo, after: int = -1) -> None:
        self._encoder, self._after = ResponseEncoder(turn), after

    @property
    def over(self) -> bool:
        return self._encoder.over

    def encode_event(self, event: Event) -> bytes:
        values = self._encoder.encode_event(event)
        return b"".join(frame(value) for value in values if value["sequence_number"] > self._after)

    def closing_frames(self) -> bytes:
        return b""


async def until_over(call: ApiRequest[B, Q], turn: Turn) -> None:
    """Wait until the turn ends or the client disconnects. The turn continues in any case.

    Raises:
        ClientDisconnect: The client has disconnected.
    """
    with call.service.streams.counted(call.caller):
        news = asyncio.Event()
        connection = SseConnection(call.service, call.caller)
        async with connection.watched(call.request.receive, news) as disconnect:
            over = asyncio.ensure_future(turn.outcome())
            try:
                await asyncio.wait({disconnect, over}, return_when=asyncio.FIRST_COMPLETED)
                if not over.done():
                    raise ClientDisconnect
                over.result()
            finally:
                over.cancel()
                await asyncio.gather(over, return_exceptions=True)


def frame(value: Value) -> bytes:
    """Encode one event of a response. JSON contains no raw line breaks, so `data` is always one line."""
    return b"event: %s\ndata: %s\n\n" % (str(value["type"]).encode(), encode(value))


class TurnStream:
    """An ASGI response that streams a turn until it ends or the client disconnects."""

    def __init__(
        self,
        service: ServerState,
        caller: Caller,
        turn: TurnInfo,
        encoder: TurnEncoder,
        *,
        afterwards: Callable[[], None] | None = None,
    ) -> None:
        self._afterwards = afterwards
        self._service, self._caller, self._turn, self._encoder = service, caller, turn, encoder
        self._connection = SseConnection(service, caller)
        self._cursor = Cursor(fence=UNSEEN, number=turn.event - 1)
        self._unread = True
        self._gone = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with AsyncExitStack() as stack:
            if self._afterwards is not None:
                stack.callback(self._afterwards)
            stack.enter_context(self._service.streams.counted(self._caller))
            owned = self._service.app.owned_by(self._caller.owner)
            subscription = stack.enter_context(owned.subscribe([self._turn.session]))
            stack.enter_context(self._service.streams.waking(subscription.changed))
            disconnect = await stack.enter_async_context(self._connection.watched(receive, subscription.changed))
            closing_frames = b": bye\n\n"
            try:
                await self._send_events(send, subscription, disconnect)
                closing_frames = self._encoder.closing_frames() if self._encoder.over else closing_frames
            except ClientDisconnected:
                return
            except TokenInvalid:
                pass
            except BackstayError as error:
                # The store failed or was closed. The client can reconnect and continue after the last number it
                # received.
                log.warning("stream ended early", extra={"error": str(error.args[0])})
            await self._connection.close(send, closing_frames)

    async def _send_events(self, send: Send, subscription: MultiSubscription, disconnect: "asyncio.Task[None]") -> None:
        session = self._turn.session
        await self._connection.open(send, (SESSION_HEADER.encode(), session.encode()))
        while not (self._service.streams.closing or self._encoder.over or self._gone):
            if disconnect.done():
                raise ClientDisconnected
            subscription.changed.clear()
            if subscription.must_read(session, self._cursor) or self._unread:
                await self._send_page(send)
            else:
                await self._connection.wait(send, subscription.changed)

    async def _send_page(self, send: Send) -> None:
        """Send the new events in writes of bounded size; each waits until the socket has accepted the previous one."""
        owned = self._service.app.owned_by(self._caller.owner)
        page = await owned.run(commands.events_after(self._turn.session, self._cursor, owner=owned.owner))
        if page.gap is not None:
            # The events already sent were folded, or lost in a power failure, so the numbers would not continue.
            raise ClientDisconnected
        self._cursor = page.next
        self._unread = page.more
        frames = b""
        for event in page.events:
            self._gone = self._gone or isinstance(event.body, SessionDeleted)
            if event.turn == self._turn.id:
                frames += self._encoder.encode_event(event)
            if len(frames) >= WRITE_BYTES:
                await self._connection.write(send, frames)
                frames = b""
        await self._connection.write(send, frames)
