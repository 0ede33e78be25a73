"""Serving: from settings to a server that answers, alone or with several workers."""

import asyncio
import socket
from collections.abc import Callable

import msgspec

from backstay.agents.ladder import Ladder
from backstay.config import Settings
from backstay.errors import ConfigError
from backstay.server import worker
from backstay.server.casting import cast
from backstay.server.firsttoken import ensure_token, make_link
from backstay.server.logs import set_up
from backstay.server.stopping import Stopping
from backstay.server.supervisor import Supervisor
from backstay.store import About, open_store


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """What is served, told to the person who started it. `sign_in` works once; it is for them and for no log."""

    url: str
    sign_in: str | None
    token_file: str | None
    workers: int
    agent: tuple[str, ...]
    why: str
    store: About


def serve(settings: Settings, ladder: Ladder, announce: Callable[[Serving], None]) -> None:
    """Listen, say so, and answer until told to stop. Who answers was decided once, for all workers."""
    stopping = Stopping()
    set_up(settings.log_level, settings.log_format)
    settings = msgspec.structs.replace(settings, agent=ladder.agent)
    # A name that leads nowhere is told at once, not by every worker.
    agents = cast(settings.agent, settings, demo=settings.demo)
    listener = _listen(settings)
    with listener:
        announce(_prepare(settings, ladder, tuple(agents), listener))
        # In a demonstration the server is crashed on purpose, and must come back.
        if settings.workers == 1 and not settings.demo:
            worker.run(settings, listener, stopping, why=ladder.why)
        else:
            asyncio.run(Supervisor(settings, listener, stopping, ladder.why).run())


def _prepare(settings: Settings, ladder: Ladder, agents: tuple[str, ...], listener: socket.socket) -> Serving:
    """Open the store once before anybody serves it: migrate it, and see that there is a token."""
    url = _url(settings, listener)
    with open_store(settings.db) as store:
        token_file = str(ensure_token(store, settings)) if settings.auth else None
        sign_in = f"{url}login#{make_link(store, settings.owner)}" if settings.auth else None
        return Serving(
            url=url,
            sign_in=sign_in,
            token_file=token_file,
            workers=settings.workers,
            agent=agents,
            why=ladder.why,
            store=store.about(),
        )


def _listen(settings: Settings) -> socket.socket:
    try:
        return worker.listen(settings)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror}",
            hint="Choose another with --host and --port; port 0 takes a free one.",
        ) from error


def _url(settings: Settings, listener: socket.socket) -> str:
    port = listener.getsockname()[1]
    named = settings.allowed_hosts[0] if settings.allowed_hosts else settings.host
    host = f"[{named}]" if ":" in named and not named.startswith("[") else named
    if settings.https:
        return f"https://{host}/"
    return f"http://{host}:{port}/"
