"""The doorstep: where a connection waits that asks for nothing yet, and not for longer than is bearable."""

import asyncio
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol


class Configuration(uvicorn.Config):
    """Uvicorn's, and how long the head of a request is waited for."""

    head_seconds = 30.0


class Doorstep(H11Protocol):
    """HTTP/1.1 for those who say in time what they want: byte by byte, nobody holds a connection for ever."""

    def __init__(self, config: Configuration, *rest: Any, **named: Any) -> None:  # Any: whatever uvicorn hands on
        super().__init__(config, *rest, **named)
        self._seconds = config.head_seconds
        self._leaving: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the original
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait()
        else:
            self._enter()

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter()
        super().connection_lost(exc)

    def _wait(self) -> None:
        """Nothing is being answered: the time runs from the first byte, not from the latest."""
        if self._leaving is None:
            self._leaving = self.loop.call_later(self._seconds, self.transport.close)

    def _enter(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
