"""Exports and imports of whole sessions: few at once, through temporary files instead of memory.

The data of a slow client waits in a temporary file, so the client does not block the transfers of other owners.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from tempfile import TemporaryFile
from typing import BinaryIO, TypeVar
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from backstay.server.http.problems import Refused, too_large

T = TypeVar("T")

_PIECE = 1 << 18
# A large document may take longer than the deadline, at this minimum number of bytes per second.
_SLOWEST = 64 << 10


class Transfers:
    """Limits how many transfers run at once, in total and per owner. Further ones wait for a while, then get 503."""

    def __init__(self, most: int, per_owner: int, wait_seconds: float) -> None:
        self._free, self._per_owner, self._wait_seconds = asyncio.Semaphore(most), per_owner, wait_seconds
        # Kept while a transfer of the owner runs or waits.
        self._of_owner: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._receiving: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._running: set[asyncio.Task[object]] = set()

    @asynccontextmanager
    async def receiving(self, owner: str) -> AsyncIterator[None]:
        """Inside the block, receive a document of this owner; limits how many are received at once.

        Raises:
            Refused: The owner already receives their maximum number of documents.
        """
        own = self._receiving.setdefault(owner, asyncio.Semaphore(self._per_owner))
        try:
            async with asyncio.timeout(self._wait_seconds):
                await own.acquire()
        except TimeoutError as error:
            raise _busy() from error
        try:
            yield
        finally:
            own.release()

    async def run(self, owner: str, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work` when the limits allow it. It counts until it ends, even if the caller is cancelled.

        Raises:
            Refused: The limits did not allow it in time.
        """
        own = self._of_owner.setdefault(owner, asyncio.Semaphore(self._per_owner))
        try:
            async with asyncio.timeout(self._wait_seconds):
                await _acquire_both(own, self._free)
        except TimeoutError as error:
            raise _busy() from error
        task = asyncio.ensure_future(work())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda _: self._free.release())
        task.add_done_callback(lambda _: own.release())
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel the transfers that outlived their callers, and wait until they have ended."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


def _busy() -> Refused:
    return Refused(
        503,
        "transfers",
        "this server already runs its maximum number of exports and imports",
        hint="Try again in a moment. Nothing was changed.",
        headers={"retry-after": "5"},
    )


async def _acquire_both(own: asyncio.Semaphore, shared: asyncio.Semaphore) -> None:
    """Acquire the owner's semaphore first: an owner who waits for their own transfers must not block others."""
    await own.acquire()
    try:
        await shared.acquire()
    except BaseException:
        own.release()
        raise


async def spooled(request: Request, limit: int, seconds: float) -> BinaryIO:
    """Write the request body to a temporary file.

    Raises:
        Refused: The body is larger than `limit` (413), or arrives too slowly (408).
    """
    announced = request.headers.get("content-length", "0")
    if not announced.isdigit() or int(announced) > limit:
        raise too_large(limit)
    file = await asyncio.to_thread(TemporaryFile)
    try:
        async with asyncio.timeout(seconds) as deadline:
            await _receive(request, file, limit, deadline)
    except TimeoutError as error:
        file.close()
        raise Refused(
            408, "slow", "the body did not arrive in time", hint="Send the request again on a faster connection."
        ) from error
    except BaseException:
        file.close()
        raise
    return file


async def _receive(request: Request, file: BinaryIO, limit: int, deadline: asyncio.Timeout) -> None:
    received, end = 0, deadline.when() or 0.0
    async for piece in request.stream():
        received += len(piece)
        if received > limit:
            raise too_large(limit)
        deadline.reschedule(end + received / _SLOWEST)
        await asyncio.to_thread(file.write, piece)
    await asyncio.to_thread(file.seek, 0)


class FileAnswer:
    """Sends a temporary file piece by piece, then closes it."""

    def __init__(self, file: BinaryIO, headers: dict[str, str]) -> None:
        self._file = file
        size = file.seek(0, 2)
        file.seek(0)
        sent = {"content-length": str(size)} | headers
        self._headers = [(name.encode(), value.encode()) for name, value in sent.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await send({"type": "http.response.start", "status": 200, "headers": self._headers})
            while piece := await asyncio.to_thread(self._file.read, _PIECE):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
