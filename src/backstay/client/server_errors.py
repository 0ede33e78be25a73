"""Converts an error response of a server to the exception that the same error raises in the server's process."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from backstay import errors
from backstay.errors import BackstayError
from backstay.model.failure_reasons import code_of

_HINT = "Check that the URL is the address of a Backstay server."
_LONGEST = 1 << 16


class ProblemBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an error response. A field that is missing keeps its default."""

    code: str = "foreign"
    title: str = "the server sent an unexpected response"
    hint: str = _HINT
    expected: int = 0
    actual: int = 0


class ErrorResponse(NamedTuple):
    """The status and the code of the response that became an error."""

    status: int
    code: str


def _all_kinds() -> dict[str, type[BackstayError]]:
    named = (getattr(errors, name) for name in errors.__all__)
    return {code_of(kind): kind for kind in named if isinstance(kind, type) and issubclass(kind, BackstayError)}


_KINDS = _all_kinds()
_OF_SERVER: dict[str, type[BackstayError]] = {
    "invalid": errors.InvalidPayload,
    "malformed": errors.InvalidPayload,
    "cursor": errors.InvalidPayload,
}
# For other codes of the server itself, such as `unauthenticated`: the status shows who must act.
_BY_STATUS: dict[int, type[BackstayError]] = {
    401: errors.AccessDenied,
    403: errors.AccessDenied,
    404: errors.NotFound,
    408: errors.StoreUnavailable,
    409: errors.Conflict,
    412: errors.RevisionMismatch,
    413: errors.TooLarge,
    429: errors.QuotaExceeded,
    502: errors.StoreUnavailable,
    503: errors.StoreUnavailable,
    504: errors.StoreUnavailable,
    507: errors.StoreFull,
}


def error_of(status: int, body: bytes) -> BackstayError:
    """The exception for a response that is not a success."""
    problem = _decoded(body[:_LONGEST])
    kind = (
        _KINDS.get(problem.code)
        or _OF_SERVER.get(problem.code)
        or _BY_STATUS.get(status)
        or (errors.StoreError if status >= 500 else errors.Rejected)
    )
    if 300 <= status < 400:
        return errors.ConfigError(
            "the server redirects to another URL", hint="Connect to that URL; a token never follows."
        )
    return _made(kind, problem, status)


def response_of(error: BackstayError) -> ErrorResponse | None:
    """The response that became this error; None if no server sent it. Several codes of a server share a class."""
    found = vars(error).get(_RESPONSE)
    return found if isinstance(found, ErrorResponse) else None


def _decoded(body: bytes) -> ProblemBody:
    try:
        return msgspec.json.decode(body, type=ProblemBody)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ProblemBody()


_RESPONSE = "_response"
# The values that a class takes beside its message, which the response does not have.
_MISSING: Mapping[type[BackstayError], dict[str, object]] = {
    errors.InvalidAddress: {"part": ""},
    errors.TokenExpired: {"expires_at": 0},
    errors.CorruptRecord: {"record": ""},
}


def _made(kind: type[BackstayError], problem: ProblemBody, status: int) -> BackstayError:
    """An error of the class, without its constructor: that composes the message, and the server has done so."""
    error = kind.__new__(kind)
    BackstayError.__init__(error, problem.title, hint=problem.hint)
    error.__dict__.update(_MISSING.get(kind, {}) | {_RESPONSE: ErrorResponse(status, problem.code)})
    if isinstance(error, errors.RevisionMismatch):
        error.expected, error.actual = problem.expected, problem.actual
    return error
