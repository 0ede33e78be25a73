"""A worker: one serving process, started by the command itself or, as one of several, by the supervisor."""

import asyncio
import os
import socket
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from backstay.agents.adapters import AgentLike
from backstay.agents.selection.agent_specs import parse_agent_specs
from backstay.config import Settings
from backstay.errors import BackstayError
from backstay.gateways.configured_gateways import configured_gateways
from backstay.server.application import Server
from backstay.server.auth.agent_roots import agent_roots
from backstay.server.http.head_timeout import Configuration, HeadTimeoutProtocol
from backstay.server.process.shutdown import Shutdown
from backstay.server.process.store_retry import OpeningObserver, Unobserved
from backstay.server.process.supervisor_link import LINE_BYTES, WorkerLink, receive_order
from backstay.server.process.worker_folder import remove
from backstay.server.telemetry.logs import log, set_up

# The exit status of a worker that a restart would not help. Uvicorn's own exit statuses do not mean that.
CONFIG_ERROR = os.EX_CONFIG


class WebServer(uvicorn.Server):
    """Uvicorn, except that it opens the store before it accepts connections, and closes our streams when it stops."""

    def __init__(
        self, config: uvicorn.Config, application: Server, stopping: Shutdown | None, observer: OpeningObserver
    ) -> None:
        super().__init__(config)
        self._application, self._stopping, self._observer = application, stopping, observer

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the store, however long that takes, then accept connections. A stop signal ends the wait."""
        opening = asyncio.create_task(self._application.open(self._observer), name="backstay opening")
        try:
            while not opening.done() and not self.should_exit:
                await asyncio.wait({opening}, timeout=0.1)
            opening.cancel()
            await asyncio.wait({opening})
        except BaseException:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            # If it was open already: nothing will enter the lifespan, which would close it.
            await self._application.close()
            raise
        if opening.cancelled():
            return
        opening.result()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._application.stop()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGTERM and SIGINT; unlike uvicorn, do not raise the signal again afterwards."""
        with nullcontext() if self._stopping is None else self._stopping.handled_by(self._exit):
            yield

    def _exit(self, number: int) -> None:
        self.handle_exit(number, None)


def configuration(settings: Settings, application: ASGIApp) -> Configuration:
    """The configuration of uvicorn, with every limit set."""
    config = Configuration(
        application,
        http=HeadTimeoutProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.forwarded_allow_ips),
        forwarded_allow_ips=list(settings.forwarded_allow_ips),
        timeout_keep_alive=30,
        timeout_graceful_shutdown=max(1, round(settings.grace_seconds)),
        h11_max_incomplete_event_size=settings.header_bytes,
    )
    config.head_seconds = settings.head_seconds
    return config


def web_server(
    settings: Settings,
    application: Server,
    stopping: Shutdown | None = None,
    observer: OpeningObserver | None = None,
) -> WebServer:
    """A server for the application. Without `stopping`, it handles no signals: the embedding program must stop it."""
    return WebServer(configuration(settings, application), application, stopping, observer or Unobserved())


def on_a_loop(main: Coroutine[None, None, None]) -> None:
    """Run a coroutine to completion, on the event loop that uvicorn would choose."""
    with asyncio.Runner(loop_factory=uvicorn.Config("", log_config=None).get_loop_factory()) as runner:
        runner.run(main)


def listen(settings: Settings) -> socket.socket:
    """Open the listening socket."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Head and body are two writes. Without TCP_NODELAY, the second waits 40 ms for the client's acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # The kernel drops a client that accepts no bytes for this time, along with the data buffered for it.
            timeout = round(settings.slow_reader_seconds * 1000)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout)
        listener.bind((settings.host, settings.port))
        listener.listen(4_096)
    except BaseException:
        listener.close()
        raise
    return listener


def agents_of(settings: Settings) -> dict[str, AgentLike]:
    """The agents of a server, by name.

    Raises:
        ConfigError: A specification is invalid.
    """
    return parse_agent_specs(settings.agent, settings, demo=settings.demo, roots=partial(agent_roots, settings))


async def run(
    settings: Settings, listener: socket.socket, stopping: Shutdown, observer: OpeningObserver, *, why: str
) -> None:
    """Serve in this process until a stop signal. `why` is the reason for the choice of agent.

    Raises:
        BackstayError: The store cannot be opened, and waiting would not help.
    """
    agents = agents_of(settings)
    gateways = configured_gateways(settings, os.environ, agents)
    application = Server(settings, agents, why=why, gateways=gateways)
    await web_server(settings, application, stopping, observer).serve(sockets=[listener])


async def _run_as_one_of_several(link: socket.socket, stopping: Shutdown) -> None:
    order = receive_order(link)
    set_up(order.settings.log_level, order.settings.log_format)
    agents = agents_of(order.settings)
    application = Server(
        order.settings,
        agents,
        folder=Path(order.folder),
        why=order.why,
        gateways=configured_gateways(order.settings, os.environ, agents),
    )
    reader, writer = await asyncio.open_connection(sock=link, limit=LINE_BYTES)
    supervisor = WorkerLink(reader, writer)
    server = web_server(order.settings, application, stopping, supervisor)
    watching = asyncio.create_task(_stop_when_alone(supervisor, server), name="backstay supervisor")
    try:
        with socket.socket(fileno=order.listener) as listener:
            await server.serve(sockets=[listener])
    finally:
        if reader.at_eof() or watching.done():  # The supervisor was killed and cannot remove it.
            remove(Path(order.folder))
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        writer.close()


async def _stop_when_alone(supervisor: WorkerLink, server: WebServer) -> None:
    """Stop when the link to the supervisor breaks: nothing would ever stop or restart an orphaned worker."""
    await supervisor.until_lost()
    server.should_exit = True


def main() -> None:
    """Receive the order from the supervisor on standard input, and serve."""
    stopping = Shutdown()
    try:
        with socket.socket(fileno=os.dup(sys.stdin.fileno())) as link:
            on_a_loop(_run_as_one_of_several(link, stopping))
    except BackstayError as error:
        log.error("worker cannot serve", extra={"error": str(error)})  # without a traceback: the message is enough
        sys.exit(CONFIG_ERROR)


if __name__ == "__main__":
    main()
