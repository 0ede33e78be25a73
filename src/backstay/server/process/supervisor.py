"""The supervisor: starts the workers that share one socket, restarts dead ones, and stops them together."""

import asyncio
import socket
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import Process
from contextlib import suppress
from pathlib import Path

import msgspec

from backstay.concurrency.child_tasks import wait_for_first
from backstay.config import Settings
from backstay.errors import ConfigError
from backstay.server.process.readiness import WorkersWaiting, reason_for
from backstay.server.process.shutdown import Shutdown
from backstay.server.process.source_watch import SourceWatch
from backstay.server.process.stand_in import StandIn
from backstay.server.process.store_retry import LONGEST, StoreBackoff
from backstay.server.process.supervisor_link import CONSENT, LINE_BYTES, WorkerOrder, WorkerState, encode_message
from backstay.server.process.worker import CONFIG_ERROR
from backstay.server.process.worker_folder import worker_folder
from backstay.server.telemetry.logs import log
from backstay.server.telemetry.metrics import forget_levels

_WORKER_DIED = WorkersWaiting(code="worker_died", reason="A worker died while it started; the log has the reason.")


class Supervisor:
    """Several workers that share only a listening socket and a database."""

    def __init__(self, settings: Settings, listener: socket.socket, signals: Shutdown, why: str) -> None:
        self._settings, self._listener, self._signals, self._why = settings, listener, signals, why
        self._stopping = asyncio.Event()
        self._cannot_serve = False
        self._watch = SourceWatch(Path.cwd()) if settings.reload else None

    async def run(self) -> None:
        """Keep every worker running until the process receives a stop signal.

        Raises:
            ConfigError: A worker cannot serve, and a restart would not help.
        """
        stop = self._signals.handled_by(lambda _: self._stopping.set())
        with stop, worker_folder() as folder:
            stand_in = StandIn(self._settings, self._listener, folder)
            try:
                async with asyncio.TaskGroup() as group:
                    watching = None if self._watch is None else group.create_task(self._watch.run())
                    workers = [
                        group.create_task(self._keep(number, folder, stand_in))
                        for number in range(self._settings.workers)
                    ]
                    await asyncio.wait(workers)
                    if watching is not None:
                        watching.cancel()
            finally:
                await stand_in.close()
        if self._cannot_serve:
            raise ConfigError("a worker cannot serve", hint="The log line above has the reason.")

    async def _keep(self, number: int, folder: Path, stand_in: StandIn) -> None:
        """Run one worker, and restart it whenever it dies."""
        backoff = StoreBackoff()
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            began = loop.time()
            changed = None if self._watch is None else self._watch.next_change
            try:
                process, link = await self._start(folder)
            except OSError as error:
                # The machine is out of descriptors, processes or memory. Do not stop the workers that run.
                log.warning("worker could not be started", extra={"error": str(error)})
                await stand_in.wait(number, reason_for(error))
                await self._pause(backoff.delay())
                continue
            forwarding = asyncio.create_task(self._forward_state(number, link, stand_in), name=f"worker {process.pid}")
            try:
                ended_by_us = await self._wait_for_exit_or_change(process, changed)
            finally:
                # This ends the forwarding, also if the supervisor is cancelled.
                link[1].close()
                opened = await forwarding
            forget_levels(folder, process.pid)
            if ended_by_us:
                return
            if changed is not None and (changed.is_set() or process.returncode == CONFIG_ERROR):
                # An agent that cannot be loaded is being written: the log has its error, and the next change restarts.
                await stand_in.forget(number)
                await wait_for_first(changed, self._stopping)
                log.info("worker reloads", extra={"pid": process.pid})
                continue
            if process.returncode == CONFIG_ERROR:
                # Stop the other workers gracefully, too.
                self._cannot_serve = True
                self._stopping.set()
                return
            log.warning("worker died", extra={"pid": process.pid, "code": process.returncode})
            await (stand_in.forget(number) if opened else stand_in.wait(number, _WORKER_DIED))
            if loop.time() - began > LONGEST:
                backoff.reset()
            await self._pause(backoff.delay())

    async def _start(self, folder: Path) -> tuple[Process, tuple[StreamReader, StreamWriter]]:
        fd = self._listener.fileno()
        own_end, worker_end = socket.socketpair()
        with worker_end:
            # The link first: a cancellation after the start of the process would leave a process without an owner.
            try:
                link = await asyncio.open_connection(sock=own_end, limit=LINE_BYTES)
            except BaseException:
                own_end.close()
                raise
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    # A compiled file would hide a change within the same second that keeps the size.
                    *(["-B"] if self._watch is not None else []),
                    *("-m", "backstay.server.process.worker"),
                    stdin=worker_end.fileno(),
                    pass_fds=[fd],
                )
            except BaseException:
                link[1].close()
                raise
        link[1].write(
            encode_message(WorkerOrder(settings=self._settings, listener=fd, folder=str(folder), why=self._why))
        )
        log.info("worker started", extra={"pid": process.pid})
        return process, link

    async def _forward_state(self, number: int, link: tuple[StreamReader, StreamWriter], stand_in: StandIn) -> bool:
        """Forward the worker's state to the stand-in until the link closes. Returns whether its store was open."""
        reader, writer = link
        opened = False
        try:
            while line := await reader.readline():
                state = msgspec.json.decode(line, type=WorkerState)
                if state.waiting is not None:
                    await stand_in.wait(number, state.waiting)
                    continue
                opened = True
                await stand_in.serve(number)
                writer.write(CONSENT)
        except OSError:
            pass
        return opened

    async def _wait_for_exit_or_change(self, process: Process, changed: asyncio.Event | None) -> bool:
        """Wait until the worker has ended, or its sources have changed. Returns whether the server stops.

        If the supervisor is cancelled, it stops the worker first.
        """
        ended = asyncio.create_task(process.wait(), name=f"end of worker {process.pid}")
        events = (self._stopping,) if changed is None else (self._stopping, changed)
        stopping = asyncio.create_task(wait_for_first(*events), name=f"stop of worker {process.pid}")
        try:
            await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return self._stopping.is_set()
        finally:
            stopping.cancel()
            await self._stop(process, ended)
            await asyncio.wait({stopping})

    async def _stop(self, process: Process, ended: "asyncio.Task[int]") -> None:
        """Stop a worker that still runs. A cancellation ends its grace period."""
        try:
            if not ended.done():
                # A signal to the whole process group, as systemd sends it, may have ended the worker already.
                with suppress(ProcessLookupError):
                    process.terminate()
                # Give its streams and turns their grace period, then kill it: its turns end as interrupted when they
                # are reaped.
                await asyncio.wait({ended}, timeout=self._settings.grace_seconds * 2 + 5)
        finally:
            if not ended.done():
                with suppress(ProcessLookupError):
                    process.kill()
            await ended

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass
