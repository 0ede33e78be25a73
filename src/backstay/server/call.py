"""A call: one request as a handler sees it, and the answer it gives."""

from typing import Any, Generic, TypeVar

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from backstay.model.ids import MessageId, SessionId, TokenId, TurnId, UploadId
from backstay.runtime.owned import Owned
from backstay.server.caller import Caller
from backstay.server.problems import Refused, invalid
from backstay.server.service import Service

B = TypeVar("B")
Q = TypeVar("Q")


class Nothing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No body, or no query."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What goes back: a value that becomes JSON, bytes as they are, or somebody who will do the sending."""

    value: Any = None  # Any: whatever the operation declares
    status: int | None = None
    headers: dict[str, str] = {}
    content: bytes | None = None
    app: ASGIApp | None = None


class Call(Generic[B, Q]):
    """A request that has passed the gate and was understood."""

    def __init__(self, request: Request, service: Service, body: B, query: Q) -> None:
        self.request, self.service, self.body, self.query = request, service, body, query
        self.caller: Caller = request.scope["caller"]

    @property
    def owned(self) -> Owned:
        """What belongs to the caller, and nothing else."""
        return self.service.app.owned_by(self.caller.owner)

    @property
    def session(self) -> SessionId:
        """The session named in the path; whether it is one, the store will tell."""
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
        """The key under which a repetition of this request is the same request."""
        return self.request.headers.get("idempotency-key")

    @property
    def expected_revision(self) -> int | None:
        """The revision the caller looked at, by `If-Match`; None if they do not care."""
        told = self.request.headers.get("if-match")
        return None if told is None or told.strip() == "*" else _revision(told.strip())

    def named(self, what: str) -> str:
        """The name that stands in the path for this."""
        return str(self.request.path_params[what])


AnyCall = Call[Any, Any]  # Any: whatever body and query an operation declares


def etag(revision: int) -> str:
    """A revision as an entity tag."""
    return f'"{revision}"'


def _revision(told: str) -> int:
    digits = told[1:-1]
    if told[0:1] != '"' or told[-1:] != '"' or not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise _no_tag(told)
    return int(digits)


def _no_tag(told: str) -> Refused:
    return invalid(f"If-Match is {told[:40]!r}", hint='Send the session\'s revision in quotes, such as "7".')
