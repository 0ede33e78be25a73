"""A network that misbehaves on demand, between a client and a PostgreSQL server."""

import asyncio
import contextlib
import enum
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.postgres_servers.daemon import PATIENCE
from tests.postgres_servers.postgres import HOST, at, free_port
from tests.postgres_servers.postgres_protocol import Framing, Packet

T = TypeVar("T")


class Fault(enum.Enum):
    """What happens to a connection around one COMMIT."""

    UNSENT = "it is cut before the server is asked to commit"
    SENT = "it is cut as soon as the server has been asked"
    UNANSWERED = "the server has committed; the answer is lost with the connection"
    SILENT = "the server has committed; the answer is lost and the connection seems to live"
    LATE = "it is cut for the client; the server is asked to commit a moment later"
    HELD = "nothing passes any more; to both ends it seems to live, with the transaction open"


# The delay of a late COMMIT: long enough for its client to look it up over another connection.
LATENESS = 0.3

# Decides by the number of a COMMIT, counted over all connections from 1, what happens to it.
Plan = Callable[[int], Fault | None]


def no_fault(_: int) -> None:
    """A network that works."""


class Proxy:
    """Listens on its own port and forwards everything to `target`, until a test breaks it.

    `refuse` is a host whose port is closed, `stall` a pulled cable: nothing arrives and no error is reported.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.plan: Plan = no_fault
        self.commits = 0
        self.struck: Counter[Fault] = Counter()
        self._strikes = threading.Condition()
        self._links: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self._guests: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._flowing = self._do(_event())
        self.port = free_port()
        self.accept()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._leave())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    def url(self, database: str, **parameters: str) -> str:
        """A database of the server, by way of this network."""
        return at(self.port, database, **parameters)

    # --- faults -----------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """End every connection; new ones are accepted."""
        self._do(self._cut())

    def refuse(self) -> None:
        """End every connection and accept no new one."""
        self._do(self._refuse())

    def accept(self) -> None:
        """Accept connections again, on the same port."""
        self._do(self._accept())

    def stall(self) -> None:
        """Forward nothing, in either direction, without an error."""
        self._do(self._set_flowing(False))

    def go_on(self) -> None:
        """Forward everything that was held back."""
        self._do(self._set_flowing(True))

    def await_strikes(self, number: int) -> None:
        """Wait until this number of faults has occurred in all."""
        with self._strikes:
            assert self._strikes.wait_for(lambda: self.struck.total() >= number, PATIENCE), f"only {self.struck}"

    # --- reports of links -------------------------------------------------------------------------------------------

    def next_fault(self) -> Fault | None:
        """The fault for the COMMIT that was just seen."""
        self.commits += 1
        return self.plan(self.commits)

    def strike(self, fault: Fault) -> None:
        """A fault has happened."""
        with self._strikes:
            self.struck[fault] += 1
            self._strikes.notify_all()

    async def flowing(self) -> None:
        """Until the cable is plugged in."""
        await self._flowing.wait()

    # --- in the loop ------------------------------------------------------------------------------------------------

    def _do(self, step: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result(PATIENCE)

    async def _accept(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server((HOST, self.port))
            self._listener.setblocking(False)
            self._loop.add_reader(self._listener, self._let_in, self._listener)

    def _let_in(self, listener: socket.socket) -> None:
        # Not with an asyncio server: one that is closed during an accept forgets the connection.
        with contextlib.suppress(BlockingIOError):
            guest = self._loop.create_task(self._welcome(listener.accept()[0]))
            self._guests.add(guest)
            guest.add_done_callback(self._guests.discard)

    async def _refuse(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        while self._guests:
            await self._cut()
            await asyncio.sleep(0)

    async def _leave(self) -> None:
        """Wait until every connection is closed."""
        await self._refuse()
        for _ in range(3):
            await asyncio.sleep(0)

    async def _cut(self) -> None:
        for task in self._links.copy():
            task.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _set_flowing(self, flowing: bool) -> None:
        (self._flowing.set if flowing else self._flowing.clear)()

    async def _welcome(self, guest: socket.socket) -> None:
        """Forward one connection until it ends."""
        # asyncio does so only for sockets it made itself; without it every answer waits for the system, for 40 ms.
        guest.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader, writer = await asyncio.open_connection(sock=guest)
        link = _Link(self, reader, writer)
        carrying = asyncio.create_task(link.carry())
        self._links.add(carrying)
        try:
            await asyncio.wait([carrying])
        finally:
            link.hang_up()
            self._links.discard(carrying)


class _Link:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client, self._to_client = reader, writer
        self._to_server: asyncio.StreamWriter | None = None
        self._fault: Fault | None = None
        self._deaf = False
        # The number of requested and of received ready messages of the server. The opening requests one by itself.
        self._asked, self._done, self._asked_before_commit = 1, 0, 0

    async def carry(self) -> None:
        """Forward data in both directions until one side has closed."""
        with contextlib.suppress(OSError):
            await self._proxy.flowing()
            server, to_server = await self._reach()
            ways = [
                asyncio.create_task(self._forth(to_server)),
                asyncio.create_task(self._back(server)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The server's end. A connection that is cut while it is opened waits for it, so that it can be closed."""
        reaching = asyncio.ensure_future(asyncio.open_connection(HOST, self._proxy.target))
        try:
            return await asyncio.shield(reaching)
        finally:
            _, self._to_server = await reaching

    def hang_up(self) -> None:
        """Close both sides at once; data that was already passed to the system may still arrive."""
        self._to_client.transport.abort()
        if self._to_server is not None:
            self._to_server.close()

    async def _forth(self, server: asyncio.StreamWriter) -> None:
        async for packet in self._packets(self._client, Framing(opening=True)):
            if packet.asks_for_encryption:
                self._to_client.write(b"N")
                continue
            if packet.asks_to_commit:
                self._fault, self._asked_before_commit = self._proxy.next_fault(), self._asked
            self._asked += packet.kind in (b"Q", b"S")
            if not await self._lets_through(packet):
                return
            server.write(packet.raw)
            await server.drain()
            if self._fault in (Fault.SENT, Fault.LATE) and packet.kind in (b"Q", b"S"):
                return

    async def _lets_through(self, packet: Packet) -> bool:
        """Whether a client's packet reaches the server, perhaps later."""
        fault = self._fault if packet.asks_to_commit else None
        if fault in (Fault.UNSENT, Fault.SENT, Fault.LATE, Fault.HELD):
            self._proxy.strike(fault)
        if fault is Fault.LATE:
            self._to_client.transport.abort()
            await asyncio.sleep(LATENESS)
        if fault is Fault.HELD:
            await asyncio.Event().wait()
        return fault is not Fault.UNSENT

    async def _back(self, server: asyncio.StreamReader) -> None:
        async for packet in self._packets(server, Framing(opening=False)):
            if packet.tells_of_commit and self._fault in (Fault.UNANSWERED, Fault.SILENT):
                self._proxy.strike(self._fault)
                self._deaf = True
                if self._fault is Fault.UNANSWERED:
                    return
            self._done += packet.tells_of_end
            # Statements that were sent together with the COMMIT, before it, are answered first.
            if self._done > self._asked_before_commit:
                self._fault = None
            if not self._deaf:
                self._to_client.write(packet.raw)
                await self._to_client.drain()

    async def _packets(self, reader: asyncio.StreamReader, framing: Framing) -> AsyncIterator[Packet]:
        while data := await reader.read(65536):
            for packet in framing.feed(data):
                await self._proxy.flowing()
                yield packet


async def _event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event
