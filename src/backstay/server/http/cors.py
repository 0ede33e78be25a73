"""Cross-origin resource sharing: preflight responses and headers for the origins in `allowed_origins`.

Pages of these origins authenticate with a token. Their cookies are never used, so credentials are not allowed.
"""

import re
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.responses import Response

METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
EXPOSED = "ETag, Location, Retry-After, WWW-Authenticate, Content-Disposition, X-Request-Id, X-Session-Id"
# How long a browser may cache the response to a preflight.
SECONDS = "600"
_NAME = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
_MOST_NAMES = 64


def is_preflight(method: str, headers: Headers) -> bool:
    """Whether this is a CORS preflight request."""
    return method == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers


def preflight_response(headers: Headers) -> Response:
    """Allow every method and valid header name: the token decides what the caller may do."""
    names = [name.strip() for name in headers.get("access-control-request-headers", "").split(",")]
    allowed = [name for name in names if _NAME.fullmatch(name)][:_MOST_NAMES]
    answer_headers = {"access-control-allow-methods": METHODS, "access-control-max-age": SECONDS}
    if allowed:
        answer_headers["access-control-allow-headers"] = ", ".join(allowed)
    return Response(None, 204, answer_headers)


def shared_with(headers: Headers, allowed_origins: Collection[str]) -> dict[str, str]:
    """The headers that let a page of an allowed origin read the response."""
    if not allowed_origins:
        return {}
    origins = headers.getlist("origin")
    if len(origins) != 1 or origins[0] not in allowed_origins:
        return {"vary": "Origin"}
    return {
        "vary": "Origin",
        "access-control-allow-origin": origins[0],
        "access-control-expose-headers": EXPOSED,
    }
