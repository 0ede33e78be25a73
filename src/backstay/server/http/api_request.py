"""A call: one request as its handler sees it, and the handler's answer."""

from typing import BinaryIO, Generic, TypeVar

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from backstay.model.ids import MessageId, SessionId, TokenId, TurnId, UploadId
from backstay.runtime.owner_sessions import OwnerSessions
from backstay.server.auth.authenticator import Caller
from backstay.server.http.problems import Refused, invalid
from backstay.server.server_state import ServerState
from backstay.store.commands import Read, Write

B = TypeVar("B")
Q = TypeVar("Q")
T = TypeVar("T")


class NoInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An empty body or query."""


class ApiResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a handler: a `value` to encode as JSON, raw `content`, or an ASGI `app` that sends the response."""

    value: object = None
    status: int | None = None
    headers: dict[str, str] = {}
    content: bytes | None = None
    app: ASGIApp | None = None


class ApiRequest(Generic[B, Q]):
    """A request that has passed the gate and whose body and query were decoded."""

    def __init__(
        self, request: Request, service: ServerState, body: B, query: Q, document: BinaryIO | None = None
    ) -> None:
        self.request, self.service, self.body, self.query = request, service, body, query
        self._document = document
        self.caller: Caller = request.scope["caller"]

    @property
    def document(self) -> BinaryIO:
        """The received document. The endpoint closes it after the operation."""
        if self._document is None:
            raise RuntimeError("this operation accepts no document")
        return self._document

    @property
    def owned(self) -> OwnerSessions:
        """The data of the caller's owner."""
        return self.service.app.owned_by(self.owner)

    @property
    def owner(self) -> str:
        """The owner for whom the caller acts."""
        return self.caller.owner

    async def run(self, command: Write[T] | Read[T]) -> T:
        """Run a command of the store for the caller's owner."""
        return await self.owned.run(command)

    @property
    def session(self) -> SessionId:
        """The session id in the path. Only the store validates it."""
        return SessionId(self.named("session"))

    @property
    def turn(self) -> TurnId:
        return TurnId(self.named("turn"))

    @property
    def message(self) -> MessageId:
        return MessageId(self.named("message"))

    @property
    def upload(self) -> UploadId:
        return UploadId(self.named("upload"))

    @property
    def token(self) -> TokenId:
        return TokenId(self.named("token"))

    @property
    def tool_call(self) -> str:
        return self.named("call")

    @property
    def blob(self) -> str:
        return self.named("blob")

    @property
    def request_id(self) -> str | None:
        """The Idempotency-Key: requests with the same key are executed once."""
        return self.request.headers.get("idempotency-key")

    @property
    def expected_revision(self) -> int | None:
        """The revision in `If-Match`, which the session must still have; None if there is no condition."""
        tag = self.request.headers.get("if-match")
        return None if tag is None or tag.strip() == "*" else _revision(tag.strip())

    def named(self, what: str) -> str:
        """The value of a path parameter."""
        return str(self.request.path_params[what])


def etag(revision: int) -> str:
    """A revision as an entity tag."""
    return f'"{revision}"'


def _revision(tag: str) -> int:
    digits = tag[1:-1]
    if tag[0:1] != '"' or tag[-1:] != '"' or not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise _invalid_etag(tag)
    return int(digits)


def _invalid_etag(tag: str) -> Refused:
    return invalid(f"invalid If-Match header {tag[:40]!r}", hint='Send the session\'s revision in quotes, such as "7".')
