"""The state of a server without its sockets, for tests of one connection."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from backstay import open as open_app
from backstay.clock import Clock
from backstay.config import Settings
from backstay.server.error_formats import ERROR_RESPONSES
from backstay.server.server_state import ServerInfo, ServerState
from backstay.server.telemetry.metrics import Metrics

INFO = ServerInfo(version="0", agents=(), scripted=(), why="", engine="SQLite")


@asynccontextmanager
async def open_state(folder: Path, *, clock: Clock | None = None) -> AsyncIterator[ServerState]:
    """A state on an open store with this clock. The next heartbeat is an hour away."""
    settings = Settings(db=str(folder / "chat.db"), heartbeat_seconds=3_600)
    async with open_app(settings.db, clock=clock) as app:
        yield ServerState(settings, app, Metrics(None), {}, INFO, error_responses=ERROR_RESPONSES)
