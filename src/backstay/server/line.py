"""A line to a client that listens: bytes go out as fast as it takes them, and it is noticed when it has left."""

import asyncio

from starlette.types import Message, Receive, Send

from backstay.server.caller import Caller
from backstay.server.logs import log
from backstay.server.service import Service

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class Gone(Exception):
    """The client has left, or reads too slowly: there is nobody to say anything to."""


class Dismissed(Exception):
    """The client may no longer read."""


class Line:
    """One client's end of a stream of server-sent events."""

    def __init__(self, service: Service, caller: Caller) -> None:
        self._service, self._caller = service, caller
        self._checked = 0.0

    async def open(self, send: Send, *more: tuple[bytes, bytes]) -> None:
        """Tell the client that a stream follows."""
        await self._send(send, {"type": "http.response.start", "status": 200, "headers": [*HEADERS, *more]})

    async def write(self, send: Send, frames: bytes) -> None:
        """Hand bytes on, once the socket has taken those before."""
        if frames:
            await self._send(send, {"type": "http.response.body", "body": frames, "more_body": True})

    async def close(self, send: Send, farewell: bytes = b"") -> None:
        """Say the last words."""
        await self._send(send, {"type": "http.response.body", "body": farewell, "more_body": False})

    async def wait(self, send: Send, news: asyncio.Event) -> None:
        """Until there is news; now and then a sign of life, which is also when we look whether the token holds."""
        try:
            async with asyncio.timeout(self._service.settings.heartbeat_seconds):
                await news.wait()
        except TimeoutError:
            await self.write(send, b": still here\n\n")
        await self._still_allowed()

    async def listen(self, receive: Receive, news: asyncio.Event) -> None:
        """Until the client has left."""
        while (await receive())["type"] != "http.disconnect":
            pass
        news.set()

    async def _still_allowed(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._checked >= self._service.settings.heartbeat_seconds:
            self._checked = now
            if not await self._service.still_holds(self._caller):
                raise Dismissed

    async def _send(self, send: Send, message: Message) -> None:
        """Hand bytes on. A client that does not take them in time is let go of: it can come back and go on."""
        try:
            async with asyncio.timeout(self._service.settings.slow_reader_seconds):
                await send(message)
        except TimeoutError as error:
            self._service.metrics.slow_readers.add()
            log.warning("slow reader let go", extra={"owner": self._caller.owner})
            raise Gone from error
