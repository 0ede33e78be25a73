"""The application: the gate, the operations, and the runtime that lives as long as the server does."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from backstay.agents.adapters import AgentLike
from backstay.agents.scripted import ScriptedAgent
from backstay.config import Settings
from backstay.runtime.app import open_app
from backstay.runtime.compaction import Compaction
from backstay.runtime.timing import Timing
from backstay.server.endpoint import Endpoint, refusal
from backstay.server.gate import Gate
from backstay.server.metrics import Metrics
from backstay.server.naming import first_words
from backstay.server.openai import routes as openai
from backstay.server.openapi import document
from backstay.server.operation import AnyOperation
from backstay.server.pages import Pages, is_public
from backstay.server.problems import Refused
from backstay.server.routes import (
    about,
    access,
    attachments,
    chapters,
    events,
    exports,
    history,
    marks,
    sessions,
    turns,
)
from backstay.server.service import Facts, Service
from backstay.server.tracing import Tracer, make_tracer
from backstay.server.upkeep import keep_up
from backstay.server.witness import ServerWitness
from backstay.store import is_postgres

OPERATIONS: tuple[AnyOperation, ...] = (
    *sessions.OPERATIONS,
    *turns.OPERATIONS,
    *history.OPERATIONS,
    *chapters.OPERATIONS,
    *marks.OPERATIONS,
    *attachments.OPERATIONS,
    *exports.OPERATIONS,
    *events.OPERATIONS,
    *access.OPERATIONS,
    *about.OPERATIONS,
)
_OPEN_TO_ALL = frozenset((one.method, one.path) for one in OPERATIONS if one.public)


class Server:
    """The ASGI application. It opens its runtime when the server starts and closes it when the server stops."""

    def __init__(
        self,
        settings: Settings,
        agents: Mapping[str, AgentLike],
        *,
        folder: Path | None = None,
        why: str = "",
        tracer: Tracer | None = None,
    ) -> None:
        self._app = open_app(
            settings.db,
            agents=agents,
            owner=settings.owner,
            on_interrupt=settings.on_interrupt,
            prompt=settings.prompt,
            titler=first_words if settings.titles else None,
            timing=Timing(grace=settings.grace_seconds),
            compaction=_compaction(settings.compact_tokens),
        )
        tracer = tracer or make_tracer()
        self.service = Service(settings, self._app, Metrics(folder), agents, _facts(settings, agents, why))
        self._witness = ServerWitness(self.service.metrics, tracer)
        self._gate = Gate(self._routes(), self.service, _is_public, tracer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._gate(scope, receive, send)

    def stop(self) -> None:
        """Let streams end; what else is under way may finish."""
        self.service.streams.close()

    def _routes(self) -> Starlette:
        by_path: dict[str, list[AnyOperation]] = defaultdict(list)
        for operation in (*OPERATIONS, *openai.OPERATIONS):
            by_path[operation.path].append(operation)
        routes = [Route(path, Endpoint(self.service, operations)) for path, operations in by_path.items()]
        app = Starlette(
            routes=[*Pages(self.service, document(OPERATIONS)).routes(), *routes],
            exception_handlers={404: _nothing_here, 405: _not_that_way},
            lifespan=self._lifespan,
        )
        # It would send clients who came by HTTPS on without it: the proxy that knows of it stands before us.
        app.router.redirect_slashes = False
        return app

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with self._app:
            self._app.report_to(self._witness)
            chores = [
                asyncio.create_task(_save_metrics(self.service), name="backstay metrics"),
                asyncio.create_task(keep_up(self._app, self.service.settings), name="backstay upkeep"),
            ]
            try:
                yield
            finally:
                for chore in chores:
                    chore.cancel()
                self.service.save_metrics()


def _compaction(tokens: int) -> Compaction | None:
    """Windows that get too long for a model that reads so many tokens keep a fifth of them and the gist of the rest."""
    return Compaction(budget=tokens, keep=tokens // 5) if tokens else None


def _facts(settings: Settings, agents: Mapping[str, AgentLike], why: str) -> Facts:
    scripted = tuple(name for name, agent in agents.items() if isinstance(agent, ScriptedAgent))
    engine = "PostgreSQL" if is_postgres(settings.db) else "SQLite"
    return Facts(version=version("backstay"), agents=tuple(agents), scripted=scripted, why=why, engine=engine)


async def _save_metrics(service: Service) -> None:
    """What is counted here is at most a second old for those who ask another worker."""
    while True:
        service.save_metrics()
        await asyncio.sleep(1)


def _is_public(method: str, path: str) -> bool:
    return is_public(method, path) or (method, path) in _OPEN_TO_ALL


async def _nothing_here(request: Request, _: Exception) -> Response:
    nothing = Refused(404, "not_found", "there is nothing here", hint="See /api/openapi.json.")
    return refusal(nothing, request.url.path)


async def _not_that_way(request: Request, error: Exception) -> Response:
    allowed = getattr(error, "headers", None)
    wrong = Refused(
        405, "method", f"{request.method} means nothing here", hint="See /api/openapi.json.", headers=allowed
    )
    return refusal(wrong, request.url.path)
