"""An operation: one thing the API can do, declared once, served and documented from the same words."""

from collections.abc import Awaitable, Callable
from typing import Any, Generic, Literal, TypeVar

import msgspec

from backstay.server.call import Answer, Call, Nothing

B = TypeVar("B")
Q = TypeVar("Q")

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
# Raw bytes in or out, instead of a value that becomes JSON.
OCTETS = bytes


class Operation(msgspec.Struct, Generic[B, Q], frozen=True, kw_only=True):
    """What is asked for, what is sent with it, what comes back, and who does it.

    `answer` None means there is nothing to send back; `also` are other statuses of success, `problems` those of
    refusals that neither its method nor its body explains. `revision` says that If-Match is heard, `request_id` that
    Idempotency-Key is; `public` that nobody need say who they are; `large` that its body or answer may be a whole
    session.
    """

    method: Method
    path: str
    name: str
    summary: str
    run: Callable[[Call[B, Q]], Awaitable[Answer]]
    body: type[B]
    query: type[Q]
    answer: Any = None  # Any: a type or a union of types
    status: int = 200
    also: tuple[int, ...] = ()
    problems: tuple[int, ...] = ()
    revision: bool = False
    request_id: bool = False
    public: bool = False
    large: bool = False
    media_type: str = "application/json"

    @property
    def takes_body(self) -> bool:
        return self.body is not Nothing

    @property
    def noun(self) -> str:
        """What it is about: the first word of its path after /api."""
        return self.path.removeprefix("/api/").split("/", maxsplit=1)[0]


AnyOperation = Operation[Any, Any]  # Any: whatever body and query it declares
