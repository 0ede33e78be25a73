"""The link between the supervisor and a worker: a socket that is the worker's standard input.

The supervisor sends one order. The worker sends its state, one line for each change. When its store is open, the worker
waits for the supervisor's consent before it accepts connections: by then the stand-in has stopped. When one side ends,
the other sees the end of the link.
"""

import asyncio
import socket

import msgspec

from backstay.config import Settings
from backstay.server.process.readiness import WorkersWaiting

CONSENT = b"serve\n"
# Longer than any order: settings take a few hundred bytes.
LINE_BYTES = 1 << 20


class WorkerOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The message from the supervisor to a new worker."""

    settings: Settings
    listener: int
    folder: str
    why: str


class WorkerState(msgspec.Struct, frozen=True, kw_only=True):
    """The message from a worker to its supervisor: why it waits, or None if its store is open."""

    waiting: WorkersWaiting | None = None


def encode_message(value: WorkerOrder | WorkerState) -> bytes:
    """Encode a message."""
    return msgspec.json.encode(value) + b"\n"


def receive_order(link: socket.socket) -> WorkerOrder:
    """Receive the order of the supervisor, which is the first line it sends.

    Raises:
        EOFError: The supervisor ended before it sent an order.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        # Byte by byte: the bytes after the line belong to the next reader of the socket.
        byte = link.recv(1)
        if not byte:
            raise EOFError("the supervisor sent no order")
        line += byte
    return msgspec.json.decode(bytes(line), type=WorkerOrder)


class WorkerLink:
    """The worker's end. It reports the opening of the store to the supervisor."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._consent = asyncio.Event()

    async def waiting(self, waiting: WorkersWaiting) -> None:
        """Report why this worker waits."""
        await self._send(WorkerState(waiting=waiting))

    async def opened(self) -> None:
        """Report that the store is open, and wait for the supervisor's consent."""
        await self._send(WorkerState())
        await self._consent.wait()

    async def until_lost(self) -> None:
        """Receive messages of the supervisor until the link closes."""
        try:
            while line := await self._reader.readline():
                if line == CONSENT:
                    self._consent.set()
        except OSError:
            pass

    async def _send(self, state: WorkerState) -> None:
        try:
            self._writer.write(encode_message(state))
            await self._writer.drain()
        except OSError:
            pass  # The supervisor has ended; `until_lost` stops this worker.
