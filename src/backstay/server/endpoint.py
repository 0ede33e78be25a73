"""An endpoint: the operations of one path, from bytes to a call and from its answer to bytes."""

import asyncio
from collections.abc import Sequence

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from backstay.errors import BackstayError, StoreError
from backstay.server.call import Answer, AnyCall, Call, Nothing
from backstay.server.logs import log
from backstay.server.openai import faults
from backstay.server.operation import OCTETS, AnyOperation
from backstay.server.problems import (
    MEDIA_TYPE,
    UNFORESEEN,
    Problem,
    Refused,
    cut_off,
    invalid,
    malformed,
    problem_of,
    too_large,
)
from backstay.server.service import Service

_encode = msgspec.json.Encoder().encode


class Endpoint:
    """Serves one path."""

    def __init__(self, service: Service, operations: Sequence[AnyOperation]) -> None:
        self._service = service
        self._operations: dict[str, AnyOperation] = {one.method: one for one in operations}
        got = self._operations.get("GET")
        if got is not None and got.media_type != "text/event-stream":
            self._operations["HEAD"] = got

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response: ASGIApp = await self._answer(request)
        except ClientDisconnect:
            return
        except BackstayError as error:
            response = refusal(error, scope["path"])
        except asyncio.CancelledError:
            if not self._service.streams.closing:
                raise
            response = refusal(cut_off(), scope["path"])
        except Exception:  # noqa: BLE001  # whatever it is, a client is told in the same words; the log says more
            log.exception("request failed", extra={"route": request.scope.get("operation")})
            response = problem_response(UNFORESEEN, scope["path"])
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> ASGIApp:
        operation = self._operations.get(request.method)
        if operation is None:
            allowed = ", ".join(sorted(self._operations))
            raise Refused(
                405,
                "method",
                f"{request.method} means nothing here",
                hint=f"Use {allowed}.",
                headers={"allow": allowed},
            )
        request.scope["operation"] = operation.name
        query = _query(operation, request)
        body = await self._body(operation, request)
        call: AnyCall = Call(request, self._service, body, query)
        return response_of(operation, await operation.run(call))

    async def _body(self, operation: AnyOperation, request: Request) -> object:
        if not operation.takes_body:
            return Nothing()
        wanted = "application/octet-stream" if operation.body is OCTETS else "application/json"
        told = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        settings = self._service.settings
        limit = settings.import_bytes if operation.large else settings.body_bytes
        content = await read_body(request, limit, settings.body_seconds)
        if told != wanted and (content or told):
            raise Refused(415, "media_type", f"the body is {told[:80]!r}", hint=f"Send Content-Type: {wanted}.")
        if operation.body is OCTETS:
            return content
        if operation.large:
            # Long enough for others to wait noticeably, if it were done here.
            return await asyncio.to_thread(_decoded, content, operation.body)
        return _decoded(content or b"{}", operation.body)


async def read_body(request: Request, limit: int, seconds: float) -> bytes:
    """The request's bytes, as many as are accepted and no slower than is bearable."""
    announced = request.headers.get("content-length", "0")
    if not announced.isdigit() or int(announced) > limit:
        raise too_large(limit)
    content = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                content += piece
                if len(content) > limit:
                    raise too_large(limit)
    except TimeoutError as error:
        raise Refused(408, "slow", "the body did not arrive in time", hint="Send it again, faster.") from error
    return bytes(content)


def response_of(operation: AnyOperation, answer: Answer) -> ASGIApp:
    """An answer as bytes."""
    if answer.app is not None:
        return answer.app
    status = answer.status or operation.status
    if answer.content is not None:
        return Response(answer.content, status, answer.headers, operation.media_type)
    if operation.answer is None or status in (204, 304):
        return Response(None, status, answer.headers)
    return Response(_encode(answer.value), status, answer.headers, "application/json")


def refusal(error: BackstayError, path: str) -> Response:
    """What a client is told of an error, in the words of the wire it speaks, by the path it asked for."""
    problem = problem_of(error)
    if problem.status >= 500:
        # What an agent says of its failure may repeat what a person said; what a store says names records and files.
        why = problem.title if isinstance(error, StoreError) else ""
        log.error("request failed", extra={"code": problem.code, "error": why})
    headers = error.headers if isinstance(error, Refused) else {}
    return problem_response(problem, path, headers, error)


def problem_response(
    problem: Problem, path: str, headers: dict[str, str] | None = None, error: BackstayError | None = None
) -> Response:
    """A problem as bytes."""
    if path.startswith(faults.PATHS):
        told = _encode(faults.body_of(problem, error))
        return Response(told, faults.status_of(problem), headers, "application/json")
    return Response(_encode(problem), problem.status, headers, MEDIA_TYPE)


def _query(operation: AnyOperation, request: Request) -> object:
    asked = request.query_params
    # A name that ends in brackets is how OpenAI's clients write a list: one parameter for each of its members.
    names = [name for name, _ in asked.multi_items() if not name.endswith("[]")]
    if len(names) != len(set(names)):
        raise invalid("a parameter is given twice", hint="Write lists with commas.")
    try:
        return msgspec.convert(dict(asked), operation.query, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(f"the query makes no sense: {error}") from error


def _decoded(content: bytes, kind: type) -> object:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise invalid(f"the body makes no sense: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed(f"the body is no JSON: {error}") from error
