"""An SSE connection: writes at the client's pace, and detects slow, departed and no longer authorised clients."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Message, Receive, Send

from backstay.server.auth.authenticator import Caller
from backstay.server.process.store_retry import StoreBackoff
from backstay.server.server_state import ServerState
from backstay.server.telemetry.logs import log

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class ClientDisconnected(Exception):
    """The client has disconnected or reads too slowly: stop, and send nothing more."""


class TokenInvalid(Exception):
    """The client's token is no longer valid: close the stream."""


class SseConnection:
    """One client's server-sent-events connection."""

    def __init__(self, service: ServerState, caller: Caller) -> None:
        self._service, self._caller = service, caller
        self._checked = 0.0
        # Checks after the expiry by our clock, while the store still accepts the token: its clock may lag behind ours.
        self._recheck_at = 0.0
        self._backoff = StoreBackoff(longest=service.settings.heartbeat_seconds)

    async def open(self, send: Send, *more: tuple[bytes, bytes]) -> None:
        """Send the response head at once, although the first event may take long."""
        await self._send(send, {"type": "http.response.start", "status": 200, "headers": [*HEADERS, *more]})
        # The connection sends a head with the first bytes of the body, even if there are none.
        await self._send(send, {"type": "http.response.body", "body": b"", "more_body": True})

    async def write(self, send: Send, frames: bytes) -> None:
        """Send bytes; return when the socket has accepted them.

        Raises:
            ClientDisconnected: The client did not accept them in time.
        """
        if frames:
            await self._send(send, {"type": "http.response.body", "body": frames, "more_body": True})

    async def close(self, send: Send, last: bytes = b"") -> None:
        """Send the last bytes and end the response."""
        await self._send(send, {"type": "http.response.body", "body": last, "more_body": False})

    async def wait(self, send: Send, news: asyncio.Event) -> None:
        """Wait for `news`, or send a heartbeat after a while; then check that the token is still valid.

        Raises:
            TokenInvalid: The token was revoked or has expired.
            ClientDisconnected: The client did not accept the heartbeat in time.
        """
        try:
            async with asyncio.timeout(self._seconds()):
                await news.wait()
        except TimeoutError:
            await self.write(send, b": still here\n\n")
        await self._still_allowed()

    @asynccontextmanager
    async def watched(self, receive: Receive, news: asyncio.Event) -> "AsyncIterator[asyncio.Task[None]]":
        """Inside the block, a task waits until the client disconnects, then sets `news`. Gives that task."""
        task = asyncio.create_task(_wait_for_disconnect(receive, news), name="backstay disconnect")
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _seconds(self) -> float:
        """Seconds until the next heartbeat or the next check of the token, whichever is first."""
        remaining = self._until_expiry()
        until_check = remaining if remaining > 0 else self._recheck_at - _loop_time()
        return min(self._service.settings.heartbeat_seconds, until_check)

    def _until_expiry(self) -> float:
        """Seconds by our clock, which only decides when to check: the store decides whether a token is valid."""
        expires_at = self._caller.expires_at
        return math.inf if expires_at is None else (expires_at - self._service.clock.now()) / 1000

    async def _still_allowed(self) -> None:
        now, is_over = _loop_time(), self._until_expiry() <= 0
        if (is_over and now >= self._recheck_at) or now - self._checked >= self._service.settings.heartbeat_seconds:
            self._checked = now
            if not await self._service.is_authorized(self._caller):
                raise TokenInvalid
            if is_over:
                self._recheck_at = now + self._backoff.delay()

    async def _send(self, send: Send, message: Message) -> None:
        """Send a message with a deadline. A client that misses it is disconnected; it can reconnect and continue."""
        try:
            async with asyncio.timeout(self._service.settings.slow_reader_seconds):
                await send(message)
        except TimeoutError as error:
            self._service.metrics.slow_readers.add()
            log.warning("slow reader disconnected", extra={"owner": self._caller.owner})
            raise ClientDisconnected from error


async def _wait_for_disconnect(receive: Receive, news: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    news.set()


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
