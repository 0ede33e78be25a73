"""An API operation: declared once, served and documented from that declaration."""

from collections.abc import Awaitable, Callable
from typing import Any, Generic, Literal, TypeVar

import msgspec

from backstay.server.http.api_request import ApiRequest, ApiResponse, NoInput

B = TypeVar("B")
Q = TypeVar("Q")

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
# Raw bytes as body or response, instead of JSON.
OCTETS = bytes


class Operation(msgspec.Struct, Generic[B, Q], frozen=True, kw_only=True):
    """One API operation: method, path, body and query types, response type, handler.

    `answer` None means an empty response. `also` lists other success statuses, `problems` error statuses that follow
    neither from the method nor from the body. `revision` means that the operation evaluates If-Match, `request_id` that
    it evaluates Idempotency-Key, and `public` that it needs no authentication. `document` is the type of a body that
    may be a whole session, in one of `document_types`: it is received into a file instead of being decoded. `files`
    means that the body may contain files: `file_body_bytes` limits it. `frames` are the types of the server-sent events
    that the operation may answer with.
    """

    method: Method
    path: str
    name: str
    summary: str
    run: Callable[[ApiRequest[B, Q]], Awaitable[ApiResponse]]
    body: type[B]
    query: type[Q]
    answer: type[object] | None = None
    status: int = 200
    also: tuple[int, ...] = ()
    problems: tuple[int, ...] = ()
    revision: bool = False
    request_id: bool = False
    files: bool = False
    public: bool = False
    document: type[object] | None = None
    document_types: tuple[str, ...] = ("application/json",)
    media_type: str = "application/json"
    frames: tuple[type, ...] = ()

    @property
    def takes_body(self) -> bool:
        return self.body is not NoInput or self.document is not None

    @property
    def noun(self) -> str:
        """The resource: the segment of the path after that of the API."""
        return self.path.split("/")[2]


AnyOperation = Operation[Any, Any]  # Any: the body and query types of any operation
