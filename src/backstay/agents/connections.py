"""Connections: the HTTP clients of an endpoint, one for each event loop that asks."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import httpx2


class _Client:
    """A client, and how many use it now."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http
        self.users = 0
        self.retired = False

    async def close_if_idle(self) -> None:
        """Close it if it was retired and nobody uses it any more."""
        if self.retired and not self.users:
            await self.http.aclose()


class Connections:
    """Opens a client when one is needed, and again after it was closed: an agent may serve one app after another.

    A client never serves another loop than its own, and is not closed under a request that is under way.
    """

    def __init__(self, make: Callable[[], httpx2.AsyncClient]) -> None:
        self._make = make
        self._clients: dict[asyncio.AbstractEventLoop, _Client] = {}

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[httpx2.AsyncClient, None]:
        """The client of the running loop."""
        client = self._here()
        client.users += 1
        try:
            yield client.http
        finally:
            client.users -= 1
            await client.close_if_idle()

    async def aclose(self) -> None:
        """Close the connections of the running loop; those in use, when they are free."""
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
