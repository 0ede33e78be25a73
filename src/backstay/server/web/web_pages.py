"""Everything besides the API operations: web UI, static files, health, metrics, OpenAPI document, sign-in page."""

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from backstay.errors import BackstayError
from backstay.server.http.problems import operators_only, unauthenticated
from backstay.server.process.readiness import WorkersWaiting, readiness, reason_for
from backstay.server.server_state import ServerState
from backstay.server.telemetry.metrics import Described
from backstay.server.web.static_files import KINDS, Files

PUBLIC = frozenset({"/", "/healthz", "/readyz", "/login", "/service-worker.js"})
RUNNING = Described("backstay_store_turns_running", "gauge", "Running turns in all processes of this store.")
WAITING = Described("backstay_store_turns_waiting", "gauge", "Waiting turns in all sessions of this store.")


# Any: a JSON Schema is arbitrary JSON.
PageSchema = dict[str, Any]


def _page(name: str, summary: str, media_type: str, schema: PageSchema, *statuses: int) -> PageSchema:
    """A page in the OpenAPI document."""
    content = {"content": {media_type: {"schema": schema}}}
    responses = {str(status): {"description": summary} | content for status in statuses}
    public: PageSchema = {"security": []} if name in ("health", "readiness") else {}
    return {"get": {"operationId": name, "summary": summary, "tags": ["pages"], "responses": responses} | public}


_STATUS: PageSchema = {
    "type": "object",
    "required": ["status"],
    "properties": {
        "status": {"type": "string"},
        "code": {"type": "string"},
        "reason": {"type": "string"},
        "waiting_workers": {"type": "array", "items": {"type": "object"}},
    },
}
# The pages for programs.
DOCUMENTED_PAGES: PageSchema = {
    "/healthz": _page("health", "Whether the process answers.", "application/json", _STATUS, 200),
    "/readyz": _page("readiness", "Whether the server and its store answer.", "application/json", _STATUS, 200, 503),
    "/metrics": _page("metrics", "Metrics for Prometheus, for the operator.", "text/plain", {"type": "string"}, 200),
    "/api/openapi.json": _page("document", "This document.", "application/json", {"type": "object"}, 200),
}
_SIGN_IN_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width">'
    '<title>Backstay</title><link rel="stylesheet" href="/static/sign_in.css">'
    "<main><h1>Backstay</h1><p>Sign in with the link that <code>backstay serve</code> printed, or create one: "
    "<code>backstay link</code></p></main></html>\n"
)


class Pages:
    """Responses that are not API operations."""

    def __init__(self, service: ServerState, document: Callable[[], bytes]) -> None:
        """`document` creates the OpenAPI document as JSON. This is slow, so it is called only on request."""
        self._service, self._document = service, document
        self._files = Files()

    def routes(self) -> list[Route]:
        """The routes of these pages."""
        return [
            Route("/", self.web_ui, name="web_ui"),
            Route("/healthz", self.health, name="health"),
            Route("/readyz", self.readiness, name="readiness"),
            Route("/metrics", self.metrics, name="metrics"),
            Route("/api/openapi.json", self.document, name="document"),
            Route("/login", self.login, name="login"),
            Route("/service-worker.js", self.service_worker, name="service_worker"),
            Route("/static/{path:path}", self.static, name="static"),
        ]

    async def web_ui(self, request: Request) -> Response:
        """The web UI; unauthenticated visitors get the page that explains how to sign in."""
        request.scope["operation"] = "page"
        return _sign_in_page() if request.scope["caller"] is None else self._files.answer("app.html", request)

    async def health(self, request: Request) -> Response:
        """Liveness: the process answers."""
        request.scope["operation"] = "health"
        return Response(b'{"status":"ok"}', media_type="application/json")

    async def readiness(self, request: Request) -> Response:
        """Readiness: the store answers too, and the server is not stopping."""
        request.scope["operation"] = "readiness"
        waiting: WorkersWaiting | None = None
        try:
            await self._service.app.load()
        except BackstayError as error:
            waiting = reason_for(error)
        if self._service.streams.closing:
            waiting = WorkersWaiting(code="closing", reason="The server is stopping.")
        body = readiness(waiting, self._service.waiting_workers())
        return Response(body, 200 if waiting is None else 503, media_type="application/json")

    async def metrics(self, request: Request) -> Response:
        """All metrics, for the operator only."""
        request.scope["operation"] = "metrics"
        if not request.scope["caller"].operator:
            return self._service.error_responses.for_error(operators_only("the metrics page"), request.url.path)
        self._service.save_metrics()
        load = await self._service.app.load()
        text = self._service.metrics.text({RUNNING: load.running, WAITING: load.waiting})
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def document(self, request: Request) -> Response:
        """The OpenAPI document."""
        request.scope["operation"] = "document"
        return Response(await asyncio.to_thread(self._document), media_type="application/json")

    async def login(self, request: Request) -> Response:
        """The page that a sign-in link opens."""
        request.scope["operation"] = "login"
        return self._files.answer("login.html", request)

    async def service_worker(self, request: Request) -> Response:
        """The service worker. Its path decides which pages it serves: all of them."""
        request.scope["operation"] = "static"
        return self._files.answer("service_worker.js", request)

    async def static(self, request: Request) -> Response:
        """A static file."""
        request.scope["operation"] = "static"
        return self._files.answer(str(request.path_params["path"]), request)


def is_public(method: str, path: str) -> bool:
    """Whether this path needs no authentication."""
    return method in ("GET", "HEAD") and (path in PUBLIC or path.startswith("/static/"))


def _sign_in_page() -> Response:
    """The page for unauthenticated visitors: only how to sign in."""
    return Response(_SIGN_IN_PAGE, 401, unauthenticated().headers, KINDS[".html"])
