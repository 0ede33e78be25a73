"""Error responses, in the format of the API that the path of a request belongs to."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
from starlette.responses import Response

from backstay.errors import BackstayError, StoreError
from backstay.server.http.problems import MEDIA_TYPE, Problem, Refused, problem_of, without_places
from backstay.server.telemetry.logs import log

_encode = msgspec.json.Encoder().encode


class EncodedError(NamedTuple):
    """An error in the format of one API."""

    status: int
    body: bytes
    media_type: str


ErrorEncoder = Callable[[Problem, BackstayError | None], EncodedError]


class ErrorResponses:
    """Converts errors to responses. `encoders` has the encoder of each path prefix with a format of its own.

    All other paths use RFC 9457 problem details.
    """

    def __init__(self, encoders: Mapping[str, ErrorEncoder]) -> None:
        self._encoders = dict(encoders)

    def for_error(self, error: BackstayError, path: str, *, operator: bool = False) -> Response:
        """The response for an error; a server error is also logged.

        The text of a store's error names files and hosts, so only an operator gets it.
        """
        problem = problem_of(error)
        if problem.status >= 500:
            # Do not log an agent's error text, which may quote a user. A store's error text names only records and
            # files.
            why = problem.title if isinstance(error, StoreError) else ""
            log.error("request failed", extra={"code": problem.code, "error": why})
        if not operator:
            problem = without_places(problem, error)
        headers = error.headers if isinstance(error, Refused) else {}
        return self.for_problem(problem, path, headers, error)

    def for_problem(
        self, problem: Problem, path: str, headers: dict[str, str] | None = None, error: BackstayError | None = None
    ) -> Response:
        """The response for a problem; `error` is the exception that it was made from, if there is one."""
        encode = next((one for prefix, one in self._encoders.items() if path.startswith(prefix)), _problem_details)
        encoded = encode(problem, error)
        return Response(encoded.body, encoded.status, headers, encoded.media_type)


def _problem_details(problem: Problem, _: BackstayError | None) -> EncodedError:
    return EncodedError(problem.status, _encode(problem), MEDIA_TYPE)
