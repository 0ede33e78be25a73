"""The gate: the checks that every request passes before its path and body are read.

The order matters. Unknown hosts and foreign origins are rejected before any cookie is read. So a page of another site
cannot use the cookie of its visitor, even if its host name resolves to this server (DNS rebinding).
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backstay.config import Settings
from backstay.errors import BackstayError, TokenExpired
from backstay.server.auth.authenticator import Caller
from backstay.server.http.cors import is_preflight, preflight_response, shared_with
from backstay.server.http.problems import Refused, expired, forbidden, read_only, unauthenticated
from backstay.server.server_state import ServerState
from backstay.server.telemetry.logs import log
from backstay.server.telemetry.tracing import Tracer

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
HEALTH = frozenset({"/healthz", "/readyz"})
SIGNED = "/hooks/"
SIGN_IN = frozenset({"/login", "/api/login"})
_HOST = re.compile(r"(?P<name>\[[^\[\]@/]*\]|[^\[\]:@/]*)(?::[0-9]*)?", re.ASCII)
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'"
)
SECURITY_HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}
# Unless the response says otherwise, no cache keeps it.
NOT_STORED = {"cache-control": "no-store"}
HSTS = {"strict-transport-security": "max-age=31536000"}

EncodedHeaders = tuple[tuple[bytes, bytes], ...]


# Whether this method and path need no authentication.
IsPublic = Callable[[str, str], bool]


class Gate:
    """Wraps the whole application, static files and unknown paths included."""

    def __init__(self, app: ASGIApp, service: ServerState, public: IsPublic, tracer: Tracer) -> None:
        self._app, self._service, self._public, self._tracer = app, service, public, tracer
        self._hosts = allowed_hosts(service.settings)
        self._always = _encoded(SECURITY_HEADERS | NOT_STORED | (HSTS if service.settings.https else {}))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        scope["request_id"] = f"req_{uuid4().hex}"
        shared = shared_with(headers, self._service.settings.allowed_origins)
        watch = _ResponseWatch(send, self._always, _encoded({"x-request-id": scope["request_id"]} | shared))
        began = asyncio.get_running_loop().time()
        with self._tracer.request(scope):
            try:
                scope["caller"] = await self._admit(scope)
            except BackstayError as error:
                self._service.metrics.refused.add(reason=getattr(error, "code", "store"))
                response = self._service.error_responses.for_error(error, scope["path"])
                await response(scope, receive, watch.send)
            else:
                app = preflight_response(headers) if is_preflight(scope["method"], headers) else self._app
                await app(scope, receive, watch.send)
        self._report(scope, watch, asyncio.get_running_loop().time() - began)

    # --- checks before the request ------------------------------------------------------------------------------------

    async def _admit(self, scope: Scope) -> Caller | None:
        headers = Headers(scope=scope)
        host = self._check_host(headers)
        self._check_origin(headers, host)
        if is_preflight(scope["method"], headers):
            self._service.rates.take(f"preflight from {(scope.get('client') or ('unknown', 0))[0]}")
            return None
        client = (scope.get("client") or ("unknown", 0))[0]
        if scope["path"].startswith(SIGNED):
            # The signature of the request counts, not a token: none is looked up in the store.
            self._service.rates.take(f"hook from {client}")
            return None
        caller, expiry = await self._caller(headers)
        if caller is None:
            # A flood of one kind from an address leaves the other kinds alone: guessed tokens do not stop health checks
            # or sign-ins, not even where a proxy that is not trusted gives everyone the same address.
            public = self._public(scope["method"], scope["path"])
            self._service.rates.take(f"{_kind(scope, public=public)} from {client}")
            if public:
                return None
            raise unauthenticated() if expiry is None else expired(expiry)
        # Per owner, not per token: more tokens do not buy more requests.
        self._service.rates.take(f"owner {caller.owner}")
        self._check_forgery(scope, headers, caller)
        if caller.access == "read" and scope["method"] not in SAFE:
            raise read_only()
        return caller

    async def _caller(self, headers: Headers) -> tuple[Caller | None, TokenExpired | None]:
        """The authenticated caller, or None; and the error of an expired token."""
        authorization = headers.get("authorization")
        # A header takes precedence, so the cookies are parsed only without one.
        sent = cookies(headers) if authorization is None else {}
        try:
            return await self._service.authenticator.caller(authorization, sent), None
        except TokenExpired as error:
            return None, error

    def _check_host(self, headers: Headers) -> str:
        """Return the request's host.

        Raises:
            Refused: There is not exactly one Host header, or it does not name an allowed host.
        """
        hosts = headers.getlist("host")
        host = hosts[0].lower() if len(hosts) == 1 else ""
        if _without_port(host) not in self._hosts:
            raise Refused(
                421,
                "host",
                "this server does not serve that host name",
                hint="Use a host name from the setting allowed_hosts.",
            )
        return host

    def _check_origin(self, headers: Headers, host: str) -> None:
        """Reject a request with an Origin header that is neither our own origin nor one of `allowed_origins`."""
        for origin in headers.getlist("origin"):
            # Browsers leave out default ports in the origin; proxies may add them to the host.
            same_origin = origin.lower() in (
                f"http://{host.removesuffix(':80')}",
                f"https://{host.removesuffix(':443')}",
            )
            if not same_origin and origin not in self._service.settings.allowed_origins:
                raise forbidden(
                    "requests from that origin are not allowed",
                    "Add the origin to allowed_origins, or use the web UI of this server.",
                )

    def _check_forgery(self, scope: Scope, headers: Headers, caller: Caller) -> None:
        """Reject a write that a browser sends unless it comes from our web UI (defence against CSRF).

        With `auth` off, a request with a foreign `Sec-Fetch-Site` is rejected too, unless its origin is allowed.
        """
        if scope["method"] in SAFE or not (caller.browser or not self._service.settings.auth):
            return
        if not caller.browser and headers.get("origin") in self._service.settings.allowed_origins:
            return
        site = headers.get("sec-fetch-site")
        if site not in (None, "same-origin", "none") or (caller.browser and site is None and "origin" not in headers):
            raise forbidden(
                "a request with a cookie must come from the web UI",
                "Send the request from the web UI, with its Origin header, or use a token.",
            )

    # --- after the response -------------------------------------------------------------------------------------------

    def _report(self, scope: Scope, watch: "_ResponseWatch", seconds: float) -> None:
        operation = scope.get("operation", "unknown")
        self._service.metrics.requests.add(operation=operation, status=str(watch.status))
        if not watch.streams:
            self._service.metrics.request_seconds.observe(seconds)
        caller: Caller | None = scope.get("caller")
        log.info(
            "request",
            extra={
                "operation": operation,
                "method": scope["method"],
                "status": watch.status,
                "ms": round(seconds * 1000, 1),
                "owner": None if caller is None else caller.owner,
                "request": scope["request_id"],
            },
        )


class _ResponseWatch:
    """Adds headers to the response, and records its status and whether it is an event stream."""

    def __init__(self, send: Send, always: EncodedHeaders, own: EncodedHeaders) -> None:
        self._send, self._always, self._own = send, always, own
        self.status = 0
        self.streams = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            self.streams = headers.get("content-type", "").startswith("text/event-stream")
            present = {name for name, _ in headers.raw}
            for pair in (*self._own, *self._always):
                if pair[0] not in present:
                    headers.raw.append(pair)
                elif pair[0] == b"vary":
                    headers.add_vary_header(pair[1].decode("latin-1"))
        await self._send(message)


def _encoded(headers: Mapping[str, str]) -> EncodedHeaders:
    return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items())


def _kind(scope: Scope, *, public: bool) -> str:
    """The kind of an unauthenticated request; each kind has its own rate limit."""
    if not public:
        return "unauthenticated"
    if scope["path"] in HEALTH:
        return "health"
    return "sign-in" if scope["path"] in SIGN_IN else "public"


def allowed_hosts(settings: Settings) -> frozenset[str]:
    """The host names, without ports, that the Host header may have."""
    named = {_without_port(host.lower()) for host in settings.allowed_hosts}
    return frozenset(named) if named else LOOPBACK | {_without_port(settings.host.lower())}


def cookies(headers: Headers) -> dict[str, str]:
    """The cookies of a request, parsed leniently, because other applications on this host may set malformed ones."""
    return cookie_parser(headers.get("cookie", ""))


def _without_port(host: str) -> str:
    """The host name; empty if this is not a host name with an optional port, so that no part of it is ignored."""
    found = _HOST.fullmatch(host)
    return found["name"] if found is not None else ""
