"""The operations of one path: decodes a request, runs its operation and encodes the response."""

import asyncio
from collections.abc import Sequence

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from backstay.errors import BackstayError
from backstay.server.auth.authenticator import Caller
from backstay.server.http.api_request import ApiRequest, ApiResponse, NoInput
from backstay.server.http.operation import OCTETS, AnyOperation
from backstay.server.http.problems import INTERNAL_ERROR, Refused, cut_off, invalid, malformed, too_large
from backstay.server.server_state import ServerState
from backstay.server.telemetry.logs import log
from backstay.server.transfers import spooled

_encode = msgspec.json.Encoder().encode


class Endpoint:
    """The ASGI application for one path. A GET operation also answers HEAD, unless it is an event stream."""

    def __init__(self, service: ServerState, operations: Sequence[AnyOperation]) -> None:
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
            caller: Caller | None = scope.get("caller")
            operator = caller is not None and caller.operator
            response = self._service.error_responses.for_error(error, scope["path"], operator=operator)
        except asyncio.CancelledError:
            if not self._service.streams.closing:
                raise
            response = self._service.error_responses.for_error(cut_off(), scope["path"])
        except Exception:  # noqa: BLE001  # the client gets a fixed text; details go to the log
            log.exception("request failed", extra={"route": request.scope.get("operation")})
            response = self._service.error_responses.for_problem(INTERNAL_ERROR, scope["path"])
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> ASGIApp:
        operation = self._operations.get(request.method)
        if operation is None:
            allowed = ", ".join(sorted(self._operations))
            raise Refused(
                405,
                "method",
                f"method {request.method} is not allowed here",
                hint=f"Use {allowed}.",
                headers={"allow": allowed},
            )
        request.scope["operation"] = operation.name
        query = _query(operation, request)
        if operation.document is not None:
            return response_of(operation, await self._run_with_document(operation, request, query))
        body = await self._body(operation, request)
        call: ApiRequest[object, object] = ApiRequest(request, self._service, body, query)
        return response_of(operation, await operation.run(call))

    async def _run_with_document(self, operation: AnyOperation, request: Request, query: object) -> ApiResponse:
        _check_media_type(request, operation.document_types)
        settings, transfers = self._service.settings, self._service.transfers
        async with transfers.receiving(request.scope["caller"].owner):
            document = await spooled(request, settings.import_bytes, settings.body_seconds)
        with document:
            return await operation.run(ApiRequest(request, self._service, NoInput(), query, document))

    async def _body(self, operation: AnyOperation, request: Request) -> object:
        if not operation.takes_body:
            return NoInput()
        wanted = "application/octet-stream" if operation.body is OCTETS else "application/json"
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        settings = self._service.settings
        limit = max(settings.body_bytes, settings.file_body_bytes) if operation.files else settings.body_bytes
        content = await read_body(request, limit, settings.body_seconds)
        if media_type != wanted and (content or media_type):
            raise Refused(
                415, "media_type", f"unsupported content type {media_type[:80]!r}", hint=f"Send Content-Type: {wanted}."
            )
        if operation.body is OCTETS:
            return content
        return _decoded(content or b"{}", operation.body)


def _check_media_type(request: Request, wanted: Sequence[str]) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in wanted:
        raise Refused(
            415,
            "media_type",
            f"unsupported content type {media_type[:80]!r}",
            hint=f"Send Content-Type: {' or '.join(wanted)}.",
        )


async def read_body(request: Request, limit: int, seconds: float) -> bytes:
    """Read the whole request body.

    Raises:
        Refused: The body is larger than `limit` (413), or takes longer than `seconds` to arrive (408).
    """
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
        raise Refused(
            408, "slow", "the body did not arrive in time", hint="Send the request again on a faster connection."
        ) from error
    return bytes(content)


def response_of(operation: AnyOperation, answer: ApiResponse) -> ASGIApp:
    """Encode an operation's answer as an HTTP response."""
    if answer.app is not None:
        return answer.app
    status = answer.status or operation.status
    if answer.content is not None:
        return Response(answer.content, status, answer.headers, operation.media_type)
    if operation.answer is None or status in (204, 304):
        return Response(None, status, answer.headers)
    return Response(_encode(answer.value), status, answer.headers, "application/json")


def _query(operation: AnyOperation, request: Request) -> object:
    parameters = request.query_params
    # A client may write a list as `name[]=a&name[]=b`, so only these names may repeat.
    names = [name for name, _ in parameters.multi_items() if not name.endswith("[]")]
    if len(names) != len(set(names)):
        raise invalid("a query parameter is given twice", hint="Separate list items with commas.")
    try:
        return msgspec.convert(dict(parameters), operation.query, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(f"invalid query: {error}") from error


def _decoded(content: bytes, kind: type) -> object:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise invalid(f"invalid body: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed(f"the body is not valid JSON: {error}") from error
