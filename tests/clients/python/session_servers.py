"""The databases of the Agents SDK's sessions, on free ports of the loopback: Redis, MongoDB and a Dapr sidecar.

Redis is `fakeredis`, MongoDB is `nx-27017` (the wire protocol on SQLite). No package registry has a sidecar of Dapr:
ours serves the three calls of a state store, with the stubs of Dapr's SDK and with etags.
"""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseServer

import grpc
from dapr.conf import settings
from dapr.proto.runtime.v1 import dapr_pb2_grpc
from dapr.proto.runtime.v1.state_pb2 import GetStateResponse
from fakeredis import TcpFakeServer
from google.protobuf.empty_pb2 import Empty
from nx_27017.handler import NeoSQLiteHandler
from nx_27017.server import handle_client

LOOPBACK = "127.0.0.1"


@contextmanager
def served(server: BaseServer) -> Iterator[int]:
    """The port of a server that runs in a thread inside the block."""
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def redis() -> Iterator[str]:
    """The URL of a Redis server."""
    server = TcpFakeServer((LOOPBACK, 0))
    server.daemon_threads = True
    with served(server) as port:
        yield f"redis://{LOOPBACK}:{port}/0"


@asynccontextmanager
async def mongodb(folder: Path) -> AsyncIterator[str]:
    """The URL of a MongoDB server."""
    handler = NeoSQLiteHandler(str(folder / "mongo.db"))
    server = await asyncio.start_server(lambda read, write: handle_client(read, write, handler), LOOPBACK, 0)
    async with server:
        yield f"mongodb://{LOOPBACK}:{server.sockets[0].getsockname()[1]}"


class Health(BaseHTTPRequestHandler):
    """Says that the sidecar is ready."""

    def do_GET(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


class StateStore(dapr_pb2_grpc.DaprServicer):
    """A state store in memory. A write with an etag replaces only the value that was read with it."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[bytes, str]] = {}
        self.versions = itertools.count(1)

    async def GetState(self, request, context) -> GetStateResponse:  # noqa: N802  # a name of Dapr's
        data, etag = self.values.get(request.key, (b"", ""))
        return GetStateResponse(data=data, etag=etag)

    async def SaveState(self, request, context) -> Empty:  # noqa: N802  # a name of Dapr's
        for state in request.states:
            await self._check(state, context)
            self.values[state.key] = state.value, str(next(self.versions))
        return Empty()

    async def DeleteState(self, request, context) -> Empty:  # noqa: N802  # a name of Dapr's
        await self._check(request, context)
        self.values.pop(request.key, None)
        return Empty()

    async def _check(self, state, context) -> None:
        present = self.values.get(state.key, (b"", ""))[1]
        if state.HasField("etag") and state.etag.value != present:
            await context.abort(grpc.StatusCode.ABORTED, f"possible etag mismatch: {state.etag.value}")


@asynccontextmanager
async def dapr() -> AsyncIterator[str]:
    """The address of a Dapr sidecar."""
    server = grpc.aio.server()
    dapr_pb2_grpc.add_DaprServicer_to_server(StateStore(), server)
    port = server.add_insecure_port(f"{LOOPBACK}:0")
    await server.start()
    with served(ThreadingHTTPServer((LOOPBACK, 0), Health)) as health:
        settings.DAPR_HTTP_PORT = health
        try:
            yield f"{LOOPBACK}:{port}"
        finally:
            await server.stop(None)
