"""Errors in the format of OpenAI's API, so that the official client raises its own exceptions."""

import re

import msgspec

from backstay.errors import BackstayError
from backstay.server.http.error_responses import EncodedError
from backstay.server.http.problems import Problem, Refused

# The paths of the OpenAI-compatible API.
PATHS = "/v1/"
# Our statuses that become 400 in this API.
_BAD = frozenset({408, 411, 415, 422})
# The statuses of the OpenAPI document instead of ours. 422 stays: it is the one of a key with another body.
DOCUMENTED_STATUSES = {status: 400 for status in _BAD if status != 422} | {412: 409}
_KINDS = {
    403: "permission_error",
    409: "conflict_error",
    429: "rate_limit_error",
}
# Our codes that have another name in this API.
_CODES = {
    "unauthenticated": "invalid_api_key",
    "token_expired": "invalid_api_key",
    "too_many": "rate_limit_exceeded",
    "quota_exceeded": "insufficient_quota",
    "malformed": "invalid_json",
}
_FAULTS = (
    (re.compile(r"unknown field"), "unknown_parameter"),
    (re.compile(r"missing required field"), "missing_required_parameter"),
    (re.compile(r"Expected `[^`]+`, got"), "invalid_type"),
)
_encode = msgspec.json.Encoder().encode
_WHERE = re.compile(r"at `\$\.([\w.\[\]]+)`|unknown field `(\w+)`")


class OpenAIError(msgspec.Struct, frozen=True, kw_only=True):
    """An error: a text for people, a code for programs, and the parameter it is about."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an error response."""

    error: OpenAIError


class BadParameter(Refused):
    """A parameter is invalid, or would have no effect here. The client must correct it or leave it out."""

    def __init__(self, param: str, message: str, *, hint: str, code: str = "invalid_value") -> None:
        super().__init__(400, code, message, hint=hint)
        self.param = param


def unsupported(param: str, why: str) -> BadParameter:
    """The error for a parameter that this server does not support."""
    return BadParameter(
        param, f"{param} is not supported here: {why}", hint="Leave it out.", code="unsupported_parameter"
    )


def encode_error(problem: Problem, error: BackstayError | None) -> EncodedError:
    """Encode a problem in this API's format; `error` may name the parameter that is wrong."""
    return EncodedError(status_of(problem), _encode(body_of(problem, error)), "application/json")


def status_of(problem: Problem) -> int:
    """The HTTP status of a problem in this API. 422 is used only for a reused key with another body."""
    if problem.status == 422 and problem.code == "request_mismatch":
        return 422
    if problem.status == 412:
        return 409
    return 400 if problem.status in _BAD else problem.status


def body_of(problem: Problem, error: BackstayError | None = None) -> ErrorBody:
    """The body of a problem in this API."""
    status = status_of(problem)
    kind = "server_error" if status >= 500 else _KINDS.get(status, "invalid_request_error")
    param = error.param if isinstance(error, BadParameter) else _param(problem.title)
    title = problem.title if problem.title.endswith((".", "!", "?")) else f"{problem.title}."
    message, code = f"{title} {problem.hint}".strip(), _code(problem)
    kind = "insufficient_quota" if code == "insufficient_quota" else kind
    return ErrorBody(error=OpenAIError(message=message, type=kind, param=param, code=code))


def _code(problem: Problem) -> str:
    """The code that this API has for a problem; our own where it has none."""
    if problem.code == "invalid":
        return next((code for fault, code in _FAULTS if fault.search(problem.title)), "invalid_value")
    return _CODES.get(problem.code, problem.code)


def _param(title: str) -> str | None:
    """The parameter that a validation error of the body or query names."""
    match = _WHERE.search(title)
    return None if match is None else match[1] or match[2]
