"""The HTTP clients of an endpoint, one for each event loop."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import httpx2


class _Client:
    """An HTTP client and the number of its running requests."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http
        self.users = 0
        self.retired = False

    async def close_if_idle(self) -> None:
        """Close it if it was retired and no request uses it."""
        if self.retired and not self.users:
            await self.http.aclose()


class Connections:
    """Opens a client when it is needed, and again after it was closed: an agent may serve one app after another.

    A client is used only on its own event loop, and is not closed during a request.
    """

    def __init__(self, make: Callable[[], httpx2.AsyncClient]) -> None:
        self._make = make
        self._clients: dict[asyncio.AbstractEventLoop, _Client] = {}

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[httpx2.AsyncClient, None]:
        """Provide the client of the running loop."""
        client = self._here()
        client.users += 1
        try:
            yield client.http
        finally:
            client.users -= 1
            await client.close_if_idle()

    async def aclose(self) -> None:
        """Close the client of the running loop; if it is in use, when its last request ends."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            client.retired = True
            await client.close_if_idle()

    def _here(self) -> _Client:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._forget_dead_loops()
            self._clients[loop] = _Client(self._make())
        return self._clients[loop]

    def _forget_dead_loops(self) -> None:
        for loop in list(self._clients):
            if loop.is_closed():
                self._clients.pop(loop, None)
