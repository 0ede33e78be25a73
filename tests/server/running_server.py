"""A server in a thread of the test, on a real socket, which starts quickly."""

import asyncio
import itertools
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx2
import msgspec

from backstay.agents.adapters import AgentLike
from backstay.config import Settings
from backstay.gateways.configured_gateways import configured_gateways
from backstay.server.application import Server
from backstay.server.auth.authenticator import digest, new_secret
from backstay.server.process.worker import WebServer, listen, web_server
from backstay.server.telemetry.tracing import Tracer
from backstay.store import open_store
from tests.databases import Place

PATIENCE = 120.0


class RunningServer:
    """A server that answers, and the database behind it."""

    def __init__(self, settings: Settings, agents: Mapping[str, AgentLike], tracer: Tracer | None = None) -> None:
        self.settings = settings
        self.owner = settings.owner
        self._listener = listen(settings)
        self.port = int(self._listener.getsockname()[1])
        self.application: Server
        self._server: WebServer
        self._tokens: dict[tuple[str, str], str] = {}
        self._owners = itertools.count(1)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(agents, tracer), name="server", daemon=True)
        self._thread.start()
        assert self._ready.wait(PATIENCE)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def place(self) -> Place:
        return self.settings.db if "://" in self.settings.db else Path(self.settings.db)

    def for_somebody_new(self) -> Self:
        """The same server. From now on clients belong to a new owner without data, unless a test names another."""
        self.owner = f"owner {next(self._owners)}"
        return self

    def token(self, owner: str | None = None, name: str = "test") -> str:
        """A token of this owner, the same for the same name."""
        owner = owner or self.owner
        if (owner, name) not in self._tokens:
            secret = self._tokens[owner, name] = new_secret()
            with open_store(self.settings.db) as store:
                store.add_token(owner=owner, name=name, hash=digest(secret))
        return self._tokens[owner, name]

    def client(self, owner: str | None = None, **more: Any) -> httpx2.Client:
        """A client of this owner."""
        return self.client_with(self.token(owner), **more)

    def client_with(self, token: str | None, **more: Any) -> httpx2.Client:
        """A client with this token, or with none. To load certificates for TLS would take longer than most tests."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return httpx2.Client(
            base_url=self.url, headers=headers, timeout=PATIENCE, trust_env=False, verify=False, **more
        )

    def stop(self) -> None:
        """Stop it, as a signal would, and wait for its end. Stopping it again changes nothing."""
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self._listener.close()

    def _run(self, agents: Mapping[str, AgentLike], tracer: Tracer | None) -> None:
        async def serve() -> None:
            gateways = configured_gateways(self.settings, {}, agents)
            self.application = Server(self.settings, agents, tracer=tracer, gateways=gateways)
            self._server = web_server(self.settings, self.application)
            # From here on requests can be sent; until it has started, they wait in the queue of its socket.
            self._ready.set()
            await self._server.serve(sockets=[self._listener])

        asyncio.run(serve())


@contextmanager
def run_server(
    place: Place, agents: Mapping[str, AgentLike] | None = None, *, tracer: Tracer | None = None, **settings: Any
) -> Iterator[RunningServer]:
    """A server on this database; stopped at the end."""
    usual = {
        "grace_seconds": 1.0,
        "requests_per_second": 1e6,
        "request_burst": 1_000_000,
        "streams_per_token": 200,
        "titles": False,  # a name that comes after the end of a turn would be one more event, at a time of its own
    }
    chosen = msgspec.convert({"db": str(place), "port": 0} | usual | settings, Settings)
    server = RunningServer(chosen, agents or {}, tracer)
    try:
        yield server
    finally:
        server.stop()
