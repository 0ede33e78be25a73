"""HTTP/1.1 connections with a deadline for the request head, and strict error responses for invalid heads."""

import asyncio
import sys
from http import HTTPStatus
from typing import Any

import h11
import msgspec
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from backstay.server.http.problems import MEDIA_TYPE, Problem
from backstay.server.http.strict_head import strict_connection

_HEAD_BYTES = 16 << 10
_TOO_LARGE = 431
_HEADERS = [
    ("content-type", MEDIA_TYPE),
    ("cache-control", "no-store"),
    ("x-content-type-options", "nosniff"),
    ("connection", "close"),
]
_LONG = Problem(
    status=_TOO_LARGE,
    code="head_too_large",
    title="the request head is too large",
    hint="Send shorter headers and a shorter URL; the limit is the setting header_bytes.",
)
_MALFORMED = Problem(
    status=400,
    code="malformed_head",
    title="the request head is not valid HTTP/1.1",
    hint="End each line with CRLF, do not fold headers, and give the body length only once.",
)


class Configuration(uvicorn.Config):
    """Uvicorn's configuration, and the deadline for a request head."""

    head_seconds = 30.0


class HeadTimeoutProtocol(H11Protocol):
    """HTTP/1.1 with a deadline for the request head (defence against slow-loris clients)."""

    def __init__(self, config: Configuration, *rest: Any, **named: Any) -> None:  # Any: uvicorn's own arguments
        super().__init__(config, *rest, **named)
        self.conn = strict_connection(config.h11_max_incomplete_event_size or _HEAD_BYTES)
        self._seconds = config.head_seconds
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the original
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait()
        else:
            self._cancel_deadline()

    def send_400_response(self, msg: str) -> None:
        """Respond to an invalid head with a problem, and close the connection: its next bytes have no known meaning."""
        error = sys.exception()
        is_long = isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == _TOO_LARGE
        problem = _LONG if is_long else _MALFORMED
        body = msgspec.json.encode(problem)
        headers = [*_HEADERS, ("content-length", str(len(body)))]
        events: list[h11.Event] = [
            h11.Response(status_code=problem.status, headers=headers, reason=HTTPStatus(problem.status).phrase),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ]
        for event in events:
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def _wait(self) -> None:
        """Start the deadline, unless it runs: it counts from the first byte of a head, not from the latest."""
        if self._deadline is None:
            self._deadline = self.loop.call_later(self._seconds, self.transport.close)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
