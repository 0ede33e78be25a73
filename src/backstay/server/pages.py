"""What is served beside the API: health, metrics, the document, and the page that signs a browser in."""

from importlib.resources import files

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from backstay.errors import BackstayError
from backstay.server.caller import Caller
from backstay.server.frontpage import Front, strangers_page
from backstay.server.metrics import Described
from backstay.server.openapi import Schema
from backstay.server.problems import unauthenticated
from backstay.server.service import Service
from backstay.store.port import Store

PUBLIC = frozenset({"/", "/healthz", "/readyz", "/login"})
NEWEST = 10
RUNNING = Described("backstay_store_turns_running", "gauge", "Turns that run in any process on this store.")
WAITING = Described("backstay_store_turns_waiting", "gauge", "Turns that wait in any session of this store.")

_STATIC = files("backstay.server").joinpath("static")
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}


class Pages:
    """Answers that are no operations of the API."""

    def __init__(self, service: Service, document: Schema, front: Front) -> None:
        self._service, self._document, self._front = service, msgspec.json.encode(document), front

    def routes(self) -> list[Route]:
        """Where they are."""
        return [
            Route("/", self.front, name="front"),
            Route("/healthz", self.health, name="health"),
            Route("/readyz", self.readiness, name="readiness"),
            Route("/metrics", self.metrics, name="metrics"),
            Route("/api/openapi.json", self.document, name="document"),
            Route("/login", self.login, name="login"),
            Route("/static/{name}", self.static, name="static"),
        ]

    async def front(self, request: Request) -> Response:
        """What runs here, told to those who may know; others are told how to sign in."""
        request.scope["operation"] = "front"
        caller: Caller | None = request.scope["caller"]
        if caller is None:
            return Response(strangers_page(), 401, unauthenticated().headers, _KINDS[".html"])
        newest = await self._service.app.owned_by(caller.owner).read(Store.list, limit=NEWEST)
        return Response(self._front.page(caller, newest.sessions), media_type=_KINDS[".html"])

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
        return _file("login.html")

    async def static(self, request: Request) -> Response:
        """A file that comes with the server."""
        request.scope["operation"] = "static"
        return _file(str(request.path_params["name"]))


def is_public(method: str, path: str) -> bool:
    """Whether these pages are for anybody."""
    return method in ("GET", "HEAD") and (path in PUBLIC or path.startswith("/static/"))


def _file(name: str) -> Response:
    """One of our own files, by a name that is in the folder: a path made of a request's words is never opened."""
    for file in _STATIC.iterdir():
        if file.name == name:
            kind = _KINDS.get(name[name.rfind(".") :], "application/octet-stream")
            return Response(file.read_bytes(), media_type=kind, headers={"cache-control": "no-cache"})
    return Response(status_code=404)
