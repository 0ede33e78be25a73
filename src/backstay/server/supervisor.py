"""The supervisor: keeps several workers on one socket alive, and ends them together."""

import asyncio
import socket
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import msgspec

from backstay.config import Settings
from backstay.errors import ConfigError
from backstay.server.logs import log
from backstay.server.metrics import forget_levels
from backstay.server.stopping import Stopping
from backstay.server.worker import HOPELESS, Order

# A worker that dies at once, again and again, is started again ever more slowly.
SHORTEST, LONGEST = 0.1, 5.0


class Supervisor:
    """Several workers that share a socket and a database, and nothing else."""

    def __init__(self, settings: Settings, listener: socket.socket, signals: Stopping, why: str) -> None:
        self._settings, self._listener, self._signals, self._why = settings, listener, signals, why
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Keep every worker alive until told to stop."""
        stop = self._signals.heard_by(lambda _: self._stopping.set())
        with stop, tempfile.TemporaryDirectory(prefix="backstay-") as folder:
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(self._settings.workers):
                        group.create_task(self._keep(Path(folder)))
            except* ConfigError as errors:
                raise errors.exceptions[0] from None

    async def _keep(self, folder: Path) -> None:
        """One worker, and the next one when it dies."""
        patience = SHORTEST
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            began = loop.time()
            process = await self._start(folder)
            if await self._until_over(process):
                return
            forget_levels(folder, process.pid)
            if process.returncode == HOPELESS:
                self._stopping.set()
                raise ConfigError("a worker cannot serve", hint="The line above, in its log, says why.")
            log.warning("worker died", extra={"pid": process.pid, "code": process.returncode})
            patience = SHORTEST if loop.time() - began > LONGEST else min(patience * 2, LONGEST)
            await self._pause(patience)

    async def _start(self, folder: Path) -> Process:
        fd = self._listener.fileno()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "backstay.server.worker", stdin=PIPE, pass_fds=[fd]
        )
        order = Order(settings=self._settings, listener=fd, folder=str(folder), why=self._why)
        if process.stdin is not None:
            process.stdin.write(msgspec.json.encode(order) + b"\n")
        log.info("worker started", extra={"pid": process.pid})
        return process

    async def _until_over(self, process: Process) -> bool:
        """Wait for the worker's end: True if it was we who ended it."""
        ended = asyncio.ensure_future(process.wait())
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if ended.done():
            return self._stopping.is_set()
        process.terminate()
        # Its streams and turns have their grace; then it is interrupted, and whoever comes next says so.
        _, late = await asyncio.wait({ended}, timeout=self._settings.grace_seconds * 2 + 5)
        if late:
            process.kill()
            await ended
        return True

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass
