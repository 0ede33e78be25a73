"""Problems: every refusal a client can meet, as `application/problem+json`, with one table of statuses."""

import re

import msgspec

from backstay import errors
from backstay.errors import BackstayError

MEDIA_TYPE = "application/problem+json"

# The first line that fits decides; the more special stands above the more general.
STATUSES: tuple[tuple[type[BackstayError], int], ...] = (
    (errors.NotFound, 404),
    (errors.RevisionMismatch, 412),
    (errors.RequestMismatch, 422),
    (errors.Conflict, 409),
    (errors.TooLarge, 413),
    (errors.Rejected, 422),
    (errors.AgentError, 502),
    (errors.StoreFull, 507),
    (errors.StoreUnavailable, 503),
    (errors.StoreError, 500),
    (errors.ConfigError, 500),
)


class Refused(BackstayError):
    """The request was refused before it reached a session."""

    def __init__(
        self, status: int, code: str, message: str, *, hint: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.status, self.code, self.headers = status, code, headers or {}


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong, and what to do next."""

    status: int
    code: str
    title: str
    hint: str
    type: str = "about:blank"
    expected: int | None = None
    actual: int | None = None


UNFORESEEN = Problem(
    status=500,
    code="unforeseen",
    title="something went wrong that nobody foresaw",
    hint="Try again; the server's log says what it was.",
)


def problem_of(error: BackstayError) -> Problem:
    """The problem that tells a client of this error."""
    title = str(error.args[0]) if error.args else ""
    if isinstance(error, Refused):
        return Problem(status=error.status, code=error.code, title=title, hint=error.advice)
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
    mismatch = error if isinstance(error, errors.RevisionMismatch) else None
    return Problem(
        status=status,
        code=_code(type(error)),
        title=title,
        hint=error.advice,
        expected=mismatch.expected if mismatch else None,
        actual=mismatch.actual if mismatch else None,
    )


def _code(kind: type[BackstayError]) -> str:
    """The error's name in the spelling of the wire: `SessionBusy` is `session_busy`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


# --- refusals of the server itself ----------------------------------------------------------------------------------


def unauthenticated() -> Refused:
    """Nobody knows who asks."""
    return Refused(
        401,
        "unauthenticated",
        "a token is needed",
        hint="Send `Authorization: Bearer …`, or sign in with the link that `backstay serve` or `backstay link` shows.",
        headers={"www-authenticate": 'Bearer realm="backstay"'},
    )


def forbidden(why: str, hint: str) -> Refused:
    """It is known who asks, and that they may not."""
    return Refused(403, "forbidden", why, hint=hint)


def malformed(why: str, hint: str = "Compare it with /api/openapi.json.") -> Refused:
    """It cannot be read."""
    return Refused(400, "malformed", why, hint=hint)


def invalid(why: str, hint: str = "Compare it with /api/openapi.json.") -> Refused:
    """It can be read and makes no sense."""
    return Refused(422, "invalid", why, hint=hint)


def too_many(why: str, seconds: float) -> Refused:
    """Slower, please."""
    wait = max(1, round(seconds))
    return Refused(429, "too_many", why, hint=f"Wait {wait} s.", headers={"retry-after": str(wait)})


def cut_off() -> Refused:
    """The server stops, and has waited for this long enough. A client that asks again by itself might do it twice."""
    return Refused(
        503,
        "closing",
        "the server stopped before it could answer",
        hint="What was asked may have been done, or go on: look before you ask again.",
        headers={"retry-after": "1", "x-should-retry": "false"},
    )


def too_large(size: int) -> Refused:
    """More than is read at once."""
    return Refused(
        413, "too_large", f"the body is larger than {size:,} bytes", hint="Send less, or upload the bulk in chunks."
    )
