"""The stand-in: answers 503 on the server's socket while no worker can, and reports why the workers wait."""

import asyncio
import socket
from functools import partial
from pathlib import Path

import uvicorn
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from backstay.config import Settings
from backstay.server.auth.gate import SECURITY_HEADERS
from backstay.server.error_formats import ERROR_RESPONSES
from backstay.server.http.problems import Problem
from backstay.server.process import readiness as readiness_files
from backstay.server.process.readiness import WorkersWaiting
from backstay.server.process.worker import configuration
from backstay.server.telemetry.logs import log

_STARTING = WorkersWaiting(code="starting", reason="The server is starting.")
_HEADERS = SECURITY_HEADERS | {"cache-control": "no-store", "connection": "close"}
_RETRY = {"retry-after": "5"}
# How long a connection that was accepted may take to send its request, when a worker takes over.
_GRACE_SECONDS = 2.0


class StandIn:
    """Keeps the state of each worker, by its number. It answers while at least one worker waits and none serves.

    A worker that is starting does neither: for that second, clients wait in the socket's queue.
    """

    def __init__(self, settings: Settings, listener: socket.socket, folder: Path | None = None) -> None:
        self._settings, self._listener, self._folder = settings, listener, folder
        self._serving: set[int] = set()
        self._waiting: dict[int, WorkersWaiting] = {}
        self._server: _Server | None = None
        self._updating = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def wait(self, worker: int, waiting: WorkersWaiting) -> None:
        """Mark a worker as waiting for its store."""
        self._serving.discard(worker)
        self._waiting[worker] = waiting
        await self._update()

    async def serve(self, worker: int) -> None:
        """Mark a worker as serving. When this returns, the stand-in accepts no more connections."""
        self._waiting.pop(worker, None)
        self._serving.add(worker)
        await self._update()

    async def forget(self, worker: int) -> None:
        """Forget the state of a worker that ended or restarts."""
        self._waiting.pop(worker, None)
        self._serving.discard(worker)
        await self._update()

    async def close(self) -> None:
        """Stop permanently, regardless of later reports; return when the last response is sent."""
        self._is_closed = True
        self._waiting.clear()
        await self._update()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _update(self) -> None:
        # One at a time: if two workers are ready at once, both must wait until the stand-in has stopped.
        async with self._updating:
            readiness_files.save(self._folder, tuple(self._waiting.values()))
            needed = bool(self._waiting) and not self._serving and not self._is_closed
            if needed and self._server is None:
                self._start()
            elif not needed and self._server is not None:
                self._server.grace_seconds = 0.0 if self._is_closed else _GRACE_SECONDS
                self._server.should_exit = True
                await self._server.closed.wait()
                self._server = None

    def _start(self) -> None:
        try:
            # Duplicate the descriptor: uvicorn closes the one it listens on, and the workers still need the original.
            listener = self._listener.dup()
        except OSError as error:
            # Clients wait in the socket's queue meanwhile. The next report of a waiting worker tries again.
            log.warning("cannot answer while the workers wait", extra={"error": str(error)})
            return
        config = configuration(self._settings, self)
        config.lifespan = "off"
        server = self._server = _Server(config)
        task = asyncio.create_task(server.serve([listener]), name="backstay stand-in")
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, server, listener))

    def _ended(self, server: "_Server", listener: socket.socket, task: "asyncio.Task[None]") -> None:
        """Clean up, even if the server failed before it started, so that nothing waits for it and another can start."""
        listener.close()
        server.closed.set()
        self._tasks.discard(task)
        if self._server is server:
            self._server = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("cannot answer while the workers wait", extra={"error": str(error)})

    # --- answers ------------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = self._response(scope["path"])
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    def _response(self, path: str) -> Response:
        if path == "/healthz":
            return Response(b'{"status":"ok"}', media_type="application/json")
        first = next(iter(self._waiting.values()), _STARTING)
        if path == "/readyz":
            return Response(readiness_files.readiness(first), 503, _RETRY, "application/json")
        hint = "The server retries automatically. Try again later; its log has the details."
        problem = Problem(status=503, code=first.code, title=first.reason, hint=hint)
        return ERROR_RESPONSES.for_problem(problem, path, dict(_RETRY))


class _Server(uvicorn.Server):
    """Uvicorn without signals; `closed` is set when it no longer accepts connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.closed = asyncio.Event()
        self.grace_seconds = 0.0

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await self._serve(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        self.closed.set()
        await self._answer_accepted()
        await super().shutdown(sockets)

    async def _answer_accepted(self) -> None:
        """Let connected clients send their request: uvicorn would close their connections without an answer."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.grace_seconds
        # Every answer closes its connection.
        while self.server_state.connections and loop.time() < end:  # noqa: ASYNC110  # uvicorn has no event for it
            await asyncio.sleep(0.01)
