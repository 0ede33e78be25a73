"""Faults: refusals in the words of this wire, so that the official client raises its own exceptions."""

import re

import msgspec

from backstay.errors import BackstayError
from backstay.server.problems import Problem, Refused

# Where this wire is spoken.
PATHS = "/v1/"
# What this wire calls a bad request, whatever else we call it.
_BAD = frozenset({408, 411, 415, 422})
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}
_WHERE = re.compile(r"at `\$\.([\w.\[\]]+)`|unknown field `(\w+)`")


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong: for a person, for a program, and in which parameter."""

    message: str
    type: str
    param: str | None
    code: str | None


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """A fault as it is sent."""

    error: Fault


class BadParameter(Refused):
    """A parameter that is not what it must be, or that would be ignored here although it means something."""

    def __init__(self, param: str, message: str, *, hint: str, code: str = "invalid_value") -> None:
        super().__init__(400, code, message, hint=hint)
        self.param = param


def unsupported(param: str, why: str) -> BadParameter:
    """A parameter that this server cannot honour, and does not pretend to."""
    return BadParameter(
        param, f"{param} is not supported here: {why}", hint="Leave it out.", code="unsupported_parameter"
    )


def status_of(problem: Problem) -> int:
    """The status by which this wire tells of a problem. The same key with another body is the one 422 it has."""
    if problem.status == 422 and problem.code == "request_mismatch":
        return 422
    if problem.status == 412:
        return 409
    return 400 if problem.status in _BAD else problem.status


def body_of(problem: Problem, error: BackstayError | None = None) -> Body:
    """A problem in the words of this wire."""
    status = status_of(problem)
    kind = "server_error" if status >= 500 else _KINDS.get(status, "invalid_request_error")
    param = error.param if isinstance(error, BadParameter) else _param(problem.title)
    title = problem.title if problem.title.endswith((".", "!", "?")) else f"{problem.title}."
    return Body(error=Fault(message=f"{title} {problem.hint}".strip(), type=kind, param=param, code=problem.code))


def _param(title: str) -> str | None:
    """The parameter that a refusal of the whole body or query speaks of."""
    match = _WHERE.search(title)
    return None if match is None else match[1] or match[2]
