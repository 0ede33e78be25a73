"""Starts a server from settings: in this process, or with several workers under a supervisor."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from backstay.agents.selection.selection import AgentSelection
from backstay.config import Settings
from backstay.errors import ConfigError
from backstay.gateways.configured_gateways import configured_gateways
from backstay.server.auth.first_token import ensure_token, make_link, record_origins
from backstay.server.auth.server_urls import origins_of
from backstay.server.process import worker
from backstay.server.process.readiness import WorkersWaiting
from backstay.server.process.shutdown import Shutdown
from backstay.server.process.stand_in import StandIn
from backstay.server.process.store_retry import retry_opening
from backstay.server.process.supervisor import Supervisor
from backstay.server.telemetry.logs import set_up
from backstay.server.webhooks.outgoing_hooks import check_webhooks
from backstay.store import About, Store, open_store


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """The announcement of a server that starts. `sign_in` works once, and may be shown only on a terminal."""

    url: str
    sign_in: str | None
    token_file: str | None
    workers: int
    agent: tuple[str, ...]
    why: str
    store: About


def serve(settings: Settings, selection: AgentSelection, announce: Callable[[Serving], None], *, link: bool) -> None:
    """Listen, announce it, and serve until a stop signal. The agent was selected once, for all workers.

    If the store has a fault that can be temporary, the server waits for it, both here and later in every worker. With
    `link`, the announcement contains a link that signs in one browser: `announce` must keep it secret.

    Raises:
        BackstayError: The server cannot serve, and waiting would not help.
    """
    stopping = Shutdown()
    set_up(settings.log_level, settings.log_format)
    settings = msgspec.structs.replace(settings, agent=selection.agent)
    # Check agents and gateways here, so that a wrong one is reported once and not by every worker.
    sys.dont_write_bytecode = sys.dont_write_bytecode or settings.reload
    agents = worker.agents_of(settings)
    configured_gateways(settings, os.environ, tuple(agents))
    check_webhooks(settings)
    with _listen(settings) as listener:
        prepare = partial(_prepare, settings, selection, tuple(agents), listener, link=link)
        worker.on_a_loop(_serve(settings, selection.why, listener, stopping, prepare=prepare, announce=announce))


async def _serve(
    settings: Settings,
    why: str,
    listener: socket.socket,
    stopping: Shutdown,
    *,
    prepare: Callable[[], Serving],
    announce: Callable[[Serving], None],
) -> None:
    # Handle signals from here to the end: one that arrives between two steps is passed to the next step.
    with stopping.handled_by(lambda _: None):
        serving = await _prepared(settings, listener, stopping, prepare)
        if serving is None:
            return
        announce(serving)
        # In a demo, the agent crashes the server on purpose. Like a reload, this needs a supervisor that restarts it.
        if settings.workers > 1 or settings.demo or settings.reload:
            await Supervisor(settings, listener, stopping, why).run()
            return
        only = _SingleWorker(settings, listener)
        try:
            await worker.run(settings, listener, stopping, only, why=why)
        finally:
            await only.stand_in.close()


async def _prepared(
    settings: Settings, listener: socket.socket, stopping: Shutdown, prepare: Callable[[], Serving]
) -> Serving | None:
    """Prepare the store and return the announcement; None if a stop signal came first."""
    only = _SingleWorker(settings, listener)
    preparing = asyncio.ensure_future(retry_opening(partial(asyncio.to_thread, prepare), only.waiting))
    try:
        with stopping.handled_by(lambda _: preparing.cancel()):
            return await preparing
    except asyncio.CancelledError:
        return None
    finally:
        await only.stand_in.close()


class _SingleWorker:
    """Reports to the stand-in how far this process is with opening the store."""

    def __init__(self, settings: Settings, listener: socket.socket) -> None:
        self.stand_in = StandIn(settings, listener)

    async def waiting(self, waiting: WorkersWaiting) -> None:
        await self.stand_in.wait(0, waiting)

    async def opened(self) -> None:
        await self.stand_in.serve(0)


def _prepare(
    settings: Settings, selection: AgentSelection, agents: tuple[str, ...], listener: socket.socket, *, link: bool
) -> Serving:
    """Open the store once before any worker does: migrate it, set its languages, and create a missing first token."""
    origins = origins_of(settings, listener.getsockname()[1])
    url = f"{origins[0]}/"
    with open_store(settings.db) as store:
        if settings.search_languages:
            store.set_search_languages(settings.search_languages)
        token_file = str(_token_file(store, settings, origins)) if settings.auth else None
        sign_in = f"{url}login#{make_link(store, settings.owner)}" if settings.auth and link else None
        return Serving(
            url=url,
            sign_in=sign_in,
            token_file=token_file,
            workers=settings.workers,
            agent=agents,
            why=selection.why,
            store=store.about(),
        )


def _token_file(store: Store, settings: Settings, origins: tuple[str, ...]) -> Path:
    path = ensure_token(store, settings)
    record_origins(path, origins)
    return path


def _listen(settings: Settings) -> socket.socket:
    try:
        return worker.listen(settings)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror}",
            hint="Choose another with --host and --port; port 0 selects a free one.",
        ) from error
