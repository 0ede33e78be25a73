"""Error responses as `application/problem+json`, with one table that gives each error its HTTP status."""

import msgspec

from backstay import errors
from backstay.errors import BackstayError
from backstay.model.failure_reasons import code_of, public_text

MEDIA_TYPE = "application/problem+json"

# The first matching row decides, so subclasses stand before their base classes.
STATUSES: tuple[tuple[type[BackstayError], int], ...] = (
    (errors.NotFound, 404),
    (errors.RevisionMismatch, 412),
    (errors.RequestMismatch, 422),
    (errors.QuotaExceeded, 429),
    (errors.Conflict, 409),
    (errors.TooLarge, 413),
    (errors.Rejected, 422),
    (errors.AccessDenied, 403),
    (errors.AgentError, 502),
    (errors.StoreFull, 507),
    (errors.StoreUnavailable, 503),
    (errors.StoreError, 500),
    (errors.ConfigError, 500),
)


class Refused(BackstayError):
    """The server rejects a request: its sender must correct it, authenticate, or wait, as the hint says."""

    def __init__(
        self, status: int, code: str, message: str, *, hint: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.status, self.code, self.headers = status, code, headers or {}


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error response: what is wrong, and what to do next."""

    status: int
    code: str
    title: str
    hint: str
    type: str = "about:blank"
    expected: int | None = None
    actual: int | None = None


INTERNAL_ERROR = Problem(
    status=500,
    code="unforeseen",
    title="internal error",
    hint="Try again. The log of the server has the details.",
)


def problem_of(error: BackstayError) -> Problem:
    """Convert an error to a problem."""
    title = str(error.args[0]) if error.args else ""
    if isinstance(error, Refused):
        return Problem(status=error.status, code=error.code, title=title, hint=error.hint)
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
    mismatch = error if isinstance(error, errors.RevisionMismatch) else None
    return Problem(
        status=status,
        code=code_of(type(error)),
        title=title,
        hint=error.hint,
        expected=mismatch.expected if mismatch else None,
        actual=mismatch.actual if mismatch else None,
    )


def without_places(problem: Problem, error: BackstayError) -> Problem:
    """The problem without the files and hosts that the text of a store's or a setting's error names."""
    if not isinstance(error, errors.StoreError | errors.ConfigError):
        return problem
    kind = type(error)
    return msgspec.structs.replace(problem, title=public_text(kind), hint=kind.hint or INTERNAL_ERROR.hint)


# --- errors of the server itself --------------------------------------------------------------------------------------


def unauthenticated() -> Refused:
    """The request has no valid token or cookie."""
    return Refused(
        401,
        "unauthenticated",
        "a token is required",
        hint="Send `Authorization: Bearer …`, or sign in with the link that `backstay serve` or `backstay link` shows.",
        headers={"www-authenticate": 'Bearer realm="backstay"'},
    )


def expired(error: errors.TokenExpired) -> Refused:
    """The token has expired."""
    challenge = 'Bearer realm="backstay", error="invalid_token", error_description="the token expired"'
    return Refused(401, "token_expired", str(error.args[0]), hint=error.hint, headers={"www-authenticate": challenge})


def read_only() -> Refused:
    """The token permits only reads."""
    return Refused(
        403,
        "read_only",
        "this token is read-only",
        hint="Use a token with full access: `backstay tokens add` without --read-only.",
        headers={"www-authenticate": 'Bearer realm="backstay", error="insufficient_scope"'},
    )


def operators_only(what: str) -> Refused:
    """Only the operator may read data that concerns all owners."""
    return forbidden(f"only the operator of this server may see {what}", "Use a token of the server's own owner.")


def forbidden(why: str, hint: str) -> Refused:
    """The caller is authenticated, but may not do this."""
    return Refused(403, "forbidden", why, hint=hint)


def malformed(why: str, hint: str = "See /api/openapi.json for the expected format.") -> Refused:
    """The request cannot be parsed."""
    return Refused(400, "malformed", why, hint=hint)


def invalid(why: str, hint: str = "See /api/openapi.json for the expected format.") -> Refused:
    """The request can be parsed, but its content is invalid."""
    return Refused(422, "invalid", why, hint=hint)


def too_many(why: str, seconds: float) -> Refused:
    """The caller exceeds a limit; they may try again after `seconds`."""
    wait = max(1, round(seconds))
    return Refused(429, "too_many", why, hint=f"Wait {wait} s.", headers={"retry-after": str(wait)})


def cut_off() -> Refused:
    """The server stopped before the request ended. Clients must not retry by themselves: it may have been executed."""
    return Refused(
        503,
        "closing",
        "the server stopped before it could answer",
        hint="The request may have been executed, or may still run: check before you send it again.",
        headers={"retry-after": "1", "x-should-retry": "false"},
    )


def too_large(size: int) -> Refused:
    """The body exceeds the limit of `size` bytes."""
    return Refused(
        413,
        "too_large",
        f"the body is larger than {size:,} bytes",
        hint="Send less, or upload large content in chunks.",
    )
