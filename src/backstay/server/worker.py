"""A worker: one process that serves. Started by the command itself, or as one of several by the supervisor."""

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import msgspec
import uvicorn

from backstay.config import Settings
from backstay.errors import BackstayError
from backstay.server.app import Server
from backstay.server.casting import cast
from backstay.server.doorstep import Configuration, Doorstep
from backstay.server.logs import log, set_up
from backstay.server.stopping import Stopping

# What a worker exits with when starting it again would fail in the same way.
HOPELESS = 3


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a supervisor tells a worker."""

    settings: Settings
    listener: int
    folder: str
    why: str


class WebServer(uvicorn.Server):
    """Uvicorn, which on its way down first lets our streams say goodbye, and then exits in good order."""

    def __init__(self, config: uvicorn.Config, application: Server, stopping: Stopping | None) -> None:
        super().__init__(config)
        self._application = application
        self._stopping = stopping

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._application.stop()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGTERM and SIGINT; unlike the original, do not raise them again afterwards."""
        with nullcontext() if self._stopping is None else self._stopping.heard_by(self._exit):
            yield

    def _exit(self, number: int) -> None:
        self.handle_exit(number, None)


def web_server(settings: Settings, application: Server, stopping: Stopping | None = None) -> WebServer:
    """A server for the application, with every limit set; if signals do not stop it, whoever embeds it must."""
    config = Configuration(
        application,
        http=Doorstep,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=max(1, round(settings.grace_seconds)),
        h11_max_incomplete_event_size=settings.header_bytes,
    )
    config.head_seconds = settings.head_seconds
    return WebServer(config, application, stopping)


def listen(settings: Settings) -> socket.socket:
    """A socket on which workers can answer."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Head and body go out as two writes: without this, the second waits 40 ms for the client's word on the first.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # A client that takes no bytes for so long is given up by the kernel too, with all that is buffered for it.
            patience = round(settings.slow_reader_seconds * 1000)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience)
        listener.bind((settings.host, settings.port))
        listener.listen(4_096)
    except BaseException:
        listener.close()
        raise
    return listener


def run(
    settings: Settings, listener: socket.socket, stopping: Stopping, folder: Path | None = None, *, why: str
) -> None:
    """Serve until told to stop; `why` says who answers, and why it is they."""
    application = Server(settings, cast(settings.agent, settings, demo=settings.demo), folder=folder, why=why)
    server = web_server(settings, application, stopping)
    if folder is not None:
        _stop_with_parent(server)
    server.run(sockets=[listener])


def _stop_with_parent(server: WebServer) -> None:
    """A worker without its supervisor would be found by nobody: when the line to it breaks, stop."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1_024):
            pass
        server.should_exit = True

    threading.Thread(target=wait, name="backstay parent", daemon=True).start()


def main() -> None:
    """Take the supervisor's order from standard input, and serve."""
    stopping = Stopping()
    line = sys.stdin.buffer.readline()
    order = msgspec.json.decode(line, type=Order)
    set_up(order.settings.log_level, order.settings.log_format)
    try:
        with socket.socket(fileno=order.listener) as listener:
            run(order.settings, listener, stopping, Path(order.folder), why=order.why)
    except BackstayError as error:
        log.error("worker cannot serve", extra={"error": str(error)})  # a sentence says it all
        sys.exit(HOPELESS)


if __name__ == "__main__":
    main()
