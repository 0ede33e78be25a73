"""What is served beside the API: the page and its files, health, metrics, the document, and how a browser signs in."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from backstay.errors import BackstayError
from backstay.server.caller import Caller
from backstay.server.files import KINDS, Files
from backstay.server.frontpage import front_page, strangers_page
from backstay.server.metrics import Described
from backstay.server.openapi import Schema
from backstay.server.problems import unauthenticated
from backstay.server.service import Service
from backstay.store.port import Store

PUBLIC = frozenset({"/", "/plain", "/healthz", "/readyz", "/login"})
NEWEST = 10
RUNNING = Described("backstay_store_turns_running", "gauge", "Turns that run in any process on this store.")
WAITING = Described("backstay_store_turns_waiting", "gauge", "Turns that wait in any session of this store.")


class Pages:
    """Answers that are no operations of the API."""

    def __init__(self, service: Service, document: Schema) -> None:
        self._service, self._document = service, msgspec.json.encode(document)
        self._files = Files()

    def routes(self) -> list[Route]:
        """Where they are."""
        return [
            Route("/", self.page, name="page"),
            Route("/plain", self.front, name="front"),
            Route("/healthz", self.health, name="health"),
            Route("/readyz", self.readiness, name="readiness"),
            Route("/metrics", self.metrics, name="metrics"),
            Route("/api/openapi.json", self.document, name="document"),
            Route("/login", self.login, name="login"),
            Route("/static/{path:path}", self.static, name="static"),
        ]

    async def page(self, request: Request) -> Response:
        """The page for those who may see sessions; others are told how to sign in."""
        request.scope["operation"] = "page"
        return _stranger() if request.scope["caller"] is None else self._files.answer("page.html", request)

    async def front(self, request: Request) -> Response:
        """What runs here, told without script to those who may know."""
        request.scope["operation"] = "front"
        caller: Caller | None = request.scope["caller"]
        if caller is None:
            return _stranger()
        newest = await self._service.app.owned_by(caller.owner).read(Store.list, limit=NEWEST)
        return Response(front_page(self._service.facts, caller, newest.sessions), media_type=KINDS[".html"])

    async def health(self, request: Request) -> Response:
        """The process answers."""
        request.scope["operation"] = "health"
        return Response(b'{"status":"ok"}', media_type="application/json")

    async def readiness(self, request: Request) -> Response:
        """The store answers too, and the server is not stopping."""
        request.scope["operation"] = "readiness"
        try:
            await self._service.app.unscoped.load()
            ready = not self._service.streams.closing
        except BackstayError:
            ready = False
        told = b'{"status":"ready"}' if ready else b'{"status":"not ready"}'
        return Response(told, 200 if ready else 503, media_type="application/json")

    async def metrics(self, request: Request) -> Response:
        """Everything that is counted."""
        request.scope["operation"] = "metrics"
        self._service.save_metrics()
        load = await self._service.app.unscoped.load()
        text = self._service.metrics.text({RUNNING: load.running, WAITING: load.waiting})
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def document(self, request: Request) -> Response:
        """The OpenAPI document."""
        request.scope["operation"] = "document"
        return Response(self._document, media_type="application/json")

    async def login(self, request: Request) -> Response:
        """The page a link leads to."""
        request.scope["operation"] = "login"
        return self._files.answer("login.html", request)

    async def static(self, request: Request) -> Response:
        """A file that comes with the server."""
        request.scope["operation"] = "static"
        return self._files.answer(str(request.path_params["path"]), request)


def is_public(method: str, path: str) -> bool:
    """Whether these pages are for anybody."""
    return method in ("GET", "HEAD") and (path in PUBLIC or path.startswith("/static/"))


def _stranger() -> Response:
    return Response(strangers_page(), 401, unauthenticated().headers, KINDS[".html"])
