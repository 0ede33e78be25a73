"""The gate: what every request passes before anything looks at what it wants.

Order matters: an unknown host or a foreign origin is turned away before any cookie is looked at, so that no page of
another site can make a browser speak for its user, whatever it resolves its own name to.
"""

import asyncio
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backstay.config import Settings
from backstay.errors import BackstayError
from backstay.server.caller import Caller
from backstay.server.endpoint import refusal
from backstay.server.logs import log
from backstay.server.problems import Refused, forbidden, unauthenticated
from backstay.server.service import Service
from backstay.server.tracing import Tracer

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
SECURITY_HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}


# Whether anybody may ask this, without saying who they are.
IsPublic = Callable[[str, str], bool]


class Gate:
    """Wraps the whole application, static files and unknown paths included."""

    def __init__(self, app: ASGIApp, service: Service, public: IsPublic, tracer: Tracer) -> None:
        self._app, self._service, self._public, self._tracer = app, service, public, tracer
        self._hosts = allowed_hosts(service.settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen = _Seen(send)
        began = asyncio.get_running_loop().time()
        with self._tracer.request(scope):
            try:
                scope["caller"] = await self._admit(scope)
            except BackstayError as error:
                self._service.metrics.refused.add(reason=getattr(error, "code", "store"))
                await refusal(error, scope["path"])(scope, receive, seen.send)
            else:
                await self._app(scope, receive, seen.send)
        self._report(scope, seen, asyncio.get_running_loop().time() - began)

    # --- who may pass -----------------------------------------------------------------------------------------------

    async def _admit(self, scope: Scope) -> Caller | None:
        headers = Headers(scope=scope)
        host = self._check_host(headers)
        self._check_origin(headers, host)
        client = (scope.get("client") or ("unknown", 0))[0]
        caller = await self._service.keys.caller(headers.get("authorization"), cookies(headers))
        if caller is None:
            # Whoever guesses tokens is slowed down by where they come from; behind a proxy all come from one place, and
            # those who sign in, or look whether the server lives, do not pay for it.
            public = self._public(scope["method"], scope["path"])
            self._service.rates.take(f"{'anybody' if public else 'unknown'} from {client}")
            if public:
                return None
            raise unauthenticated()
        self._service.rates.take(f"token {caller.token or client}")
        self._check_forgery(scope, headers, caller)
        return caller

    def _check_host(self, headers: Headers) -> str:
        """The host that was asked for: one that is ours, asked for once."""
        told = headers.getlist("host")
        host = told[0].lower() if len(told) == 1 else ""
        if _without_port(host) not in self._hosts:
            raise Refused(421, "host", "this server is not that host", hint="Ask by a name that allowed_hosts lists.")
        return host

    def _check_origin(self, headers: Headers, host: str) -> None:
        """A page may only speak to us if we served it, or the operator has named its origin."""
        for origin in headers.getlist("origin"):
            # Browsers leave out the usual ports; proxies may put them into the host.
            ours = origin.lower() in (f"http://{host.removesuffix(':80')}", f"https://{host.removesuffix(':443')}")
            if not ours and origin not in self._service.settings.allowed_origins:
                raise forbidden("requests from that origin are refused", "Name it in allowed_origins, or use our page.")

    def _check_forgery(self, scope: Scope, headers: Headers, caller: Caller) -> None:
        """What changes something, on behalf of a browser, must be seen to come from our page."""
        if scope["method"] in SAFE or not (caller.browser or not self._service.settings.auth):
            return
        site = headers.get("sec-fetch-site")
        if site not in (None, "same-origin", "none") or (caller.browser and site is None and "origin" not in headers):
            raise forbidden(
                "this request cannot be seen to come from our page", "Send it from the page, with its Origin."
            )

    # --- afterwards -------------------------------------------------------------------------------------------------

    def _report(self, scope: Scope, seen: "_Seen", seconds: float) -> None:
        operation = scope.get("operation", "unknown")
        self._service.metrics.requests.add(operation=operation, status=str(seen.status))
        if not seen.streams:
            self._service.metrics.request_seconds.observe(seconds)
        caller: Caller | None = scope.get("caller")
        log.info(
            "request",
            extra={
                "operation": operation,
                "method": scope["method"],
                "status": seen.status,
                "ms": round(seconds * 1000, 1),
                "owner": None if caller is None else caller.owner,
            },
        )


class _Seen:
    """Puts the security headers on every answer; remembers its status, and whether it lasts as long as a stream."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.streams = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            self.streams = headers.get("content-type", "").startswith("text/event-stream")
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
        await self._send(message)


def allowed_hosts(settings: Settings) -> frozenset[str]:
    """The names, without ports, under which this server may be asked."""
    named = {_without_port(host.lower()) for host in settings.allowed_hosts}
    return frozenset(named) if named else LOOPBACK | {_without_port(settings.host.lower())}


def cookies(headers: Headers) -> dict[str, str]:
    """The cookies of a request, read as forgivingly as browsers write them: not all of them are ours."""
    return cookie_parser(headers.get("cookie", ""))


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
