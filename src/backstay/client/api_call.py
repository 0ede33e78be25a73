"""An API call: one operation of the HTTP API with its arguments, as a typed value that a connection sends."""

from typing import Generic, Literal, TypeVar

import msgspec

T_co = TypeVar("T_co", covariant=True)

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


class ApiCall(msgspec.Struct, Generic[T_co], frozen=True, kw_only=True):
    """A request and the type of its answer.

    A `repeatable` call has the same effect when it is sent twice: only such a call is sent again after a failure. A
    call with a `request_id` is repeatable, because the server executes it once. `seconds` replaces the read timeout.
    """

    method: Method
    path: str
    answer: type[T_co]
    query: dict[str, str | int] = {}
    body: object | None = None
    content: bytes | None = None
    request_id: str | None = None
    expect_revision: int | None = None
    repeatable: bool = False
    seconds: float | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the call itself."""
        found = {}
        if self.request_id is not None:
            found["idempotency-key"] = self.request_id
        if self.expect_revision is not None:
            found["if-match"] = f'"{self.expect_revision}"'
        if self.content is not None:
            found["content-type"] = "application/octet-stream"
        elif self.body is not None:
            found["content-type"] = "application/json"
        return found

    @property
    def payload(self) -> bytes | None:
        """The body as it is sent."""
        return self.content if self.body is None else msgspec.json.encode(self.body)

    @property
    def may_repeat(self) -> bool:
        """Whether it may be sent again although its first attempt may have been executed."""
        return self.repeatable or self.method == "GET" or self.request_id is not None
