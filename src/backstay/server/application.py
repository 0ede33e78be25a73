"""The ASGI application: the gate, the routes, and the runtime that lives as long as the server process."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from backstay.agents.adapters import AgentLike
from backstay.agents.scripted.scripted_agent import ScriptedAgent
from backstay.config import Settings
from backstay.gateways.gateway_service import GatewayService
from backstay.runtime.served_app import served_app
from backstay.server.auth.gate import Gate
from backstay.server.error_formats import ERROR_RESPONSES
from backstay.server.http.endpoint import Endpoint
from backstay.server.http.openapi import PROBLEMS, DocumentedApi, document
from backstay.server.http.operation import AnyOperation
from backstay.server.http.problems import Refused
from backstay.server.openai import operations as openai
from backstay.server.process.background_upkeep import maintain_periodically
from backstay.server.process.store_retry import OpeningObserver, Unobserved, retry_opening
from backstay.server.push import push_routes
from backstay.server.routes import (
    about_routes,
    access_routes,
    attachment_routes,
    event_routes,
    export_routes,
    gateway_routes,
    history_routes,
    mark_routes,
    schedule_routes,
    session_routes,
    snapshot_routes,
    turn_routes,
)
from backstay.server.server_state import ServerInfo, ServerState
from backstay.server.telemetry.logs import log
from backstay.server.telemetry.metrics import Metrics
from backstay.server.telemetry.server_observer import ServerObserver
from backstay.server.telemetry.tracing import Tracer, make_tracer
from backstay.server.web.web_pages import DOCUMENTED_PAGES, Pages, is_public
from backstay.server.webhooks import webhook_routes
from backstay.server.webhooks.hook_endpoint import HookEndpoint
from backstay.server.webhooks.incoming_message import incoming_hooks
from backstay.store import is_postgres

OPERATIONS: tuple[AnyOperation, ...] = (
    *session_routes.OPERATIONS,
    *turn_routes.OPERATIONS,
    *history_routes.OPERATIONS,
    *snapshot_routes.OPERATIONS,
    *mark_routes.OPERATIONS,
    *attachment_routes.OPERATIONS,
    *export_routes.OPERATIONS,
    *event_routes.OPERATIONS,
    *schedule_routes.OPERATIONS,
    *webhook_routes.OPERATIONS,
    *gateway_routes.OPERATIONS,
    *push_routes.OPERATIONS,
    *access_routes.OPERATIONS,
    *about_routes.OPERATIONS,
)


def described() -> dict[str, Any]:  # Any: the document is arbitrary JSON
    """The OpenAPI document of this version."""
    return document((DocumentedApi(operations=OPERATIONS, errors=PROBLEMS), openai.API), DOCUMENTED_PAGES)


@cache
def _document() -> bytes:
    """The OpenAPI document of this version, as JSON."""
    return msgspec.json.encode(described())


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
        gateways: Sequence[GatewayService] = (),
    ) -> None:
        self._app = served_app(settings, agents)
        self._opened = False
        tracer = tracer or make_tracer()
        self.service = ServerState(
            settings,
            self._app,
            Metrics(folder),
            agents,
            _server_info(settings, agents, why),
            error_responses=ERROR_RESPONSES,
            gateways=gateways,
        )
        self._observer = ServerObserver(self.service.metrics, tracer)
        self._gate = Gate(self._routes(), self.service, _is_public, tracer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._gate(scope, receive, send)

    def stop(self) -> None:
        """Close the event streams; all other requests may finish."""
        self.service.streams.close()

    def _routes(self) -> Starlette:
        by_path: dict[str, list[AnyOperation]] = defaultdict(list)
        for operation in (*OPERATIONS, *openai.OPERATIONS):
            by_path[operation.path].append(operation)
        hooks = HookEndpoint(self.service, incoming_hooks(self.service.settings))
        routes = [Route(path, Endpoint(self.service, operations)) for path, operations in by_path.items()]
        app = Starlette(
            routes=[
                *Pages(self.service, _document).routes(),
                Route("/hooks/{name}", hooks.answer, methods=["POST"], name="hook"),
                *routes,
            ],
            exception_handlers={404: _not_found, 405: _method_not_allowed},
            lifespan=self._lifespan,
        )
        # Starlette would redirect HTTPS clients to plain HTTP: only the proxy in front of the server has the scheme.
        app.router.redirect_slashes = False
        return app

    async def open(self, observer: OpeningObserver) -> None:
        """Open the runtime, and retry as long as the store reports a fault that can be temporary.

        Raises:
            BackstayError: The store cannot be opened, and waiting would not help.
        """
        if not self._opened:
            await retry_opening(self._app.__aenter__, observer.waiting)
            self._opened = True
            try:
                await observer.opened()
            except BaseException:
                await self._app.close()
                raise

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        await self.open(Unobserved())
        try:
            self._app.observe_with(self._observer)
            chores = [
                asyncio.create_task(_save_metrics(self.service), name="backstay metrics"),
                asyncio.create_task(maintain_periodically(self._app, self.service.settings), name="backstay upkeep"),
                *(
                    asyncio.create_task(one.run(self._app), name=f"backstay gateway {one.status.name}")
                    for one in self.service.gateways
                ),
            ]
            for chore in chores:
                chore.add_done_callback(_log_failure)
            try:
                async with self.service.webhooks.running(self._app), self.service.push.running(self._app):
                    yield
            finally:
                for chore in chores:
                    chore.cancel()
                await asyncio.gather(*chores, return_exceptions=True)
                self.service.save_metrics()
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the runtime, after the work that uses it. Closing it again changes nothing."""
        try:
            await self.service.close()
        finally:
            await self._app.close()


def _server_info(settings: Settings, agents: Mapping[str, AgentLike], why: str) -> ServerInfo:
    scripted = tuple(name for name, agent in agents.items() if isinstance(agent, ScriptedAgent))
    engine = "PostgreSQL" if is_postgres(settings.db) else "SQLite"
    return ServerInfo(version=version("backstay"), agents=tuple(agents), scripted=scripted, why=why, engine=engine)


async def _save_metrics(service: ServerState) -> None:
    """Save the metrics every second, so that other workers report values that are at most a second old."""
    while True:
        service.save_metrics()
        await asyncio.sleep(1)


def _log_failure(chore: "asyncio.Task[None]") -> None:
    if not chore.cancelled() and (error := chore.exception()) is not None:
        log.error("background task failed", extra={"task": chore.get_name()}, exc_info=error)


def _is_public(method: str, path: str) -> bool:
    return is_public(method, path) or (method, path) in _OPEN_TO_ALL


async def _not_found(request: Request, _: Exception) -> Response:
    nothing = Refused(404, "not_found", "this path does not exist", hint="See /api/openapi.json.")
    return ERROR_RESPONSES.for_error(nothing, request.url.path)


async def _method_not_allowed(request: Request, error: Exception) -> Response:
    allowed = getattr(error, "headers", None)
    wrong = Refused(
        405, "method", f"method {request.method} is not allowed here", hint="See /api/openapi.json.", headers=allowed
    )
    return ERROR_RESPONSES.for_error(wrong, request.url.path)
