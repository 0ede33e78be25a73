"""The script of a model: its answers to one request after the other."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence

import msgspec

from backstay.errors import ConfigError
from backstay.model.content import Json, Text, Thought, ToolCall, Usage

_HINT = "Use a text, Text, Thought, ToolCall, Usage, ModelHold or ModelCut, or a list of these; or a ModelRefusal."


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that a scripted model received.

    Attributes:
        path: The path of the URL, with its query.
        headers: The headers; their names are in lower case.
        body: The JSON of the request, in the form of the provider's API.
        raw: The bytes of the body, as they were sent.
    """

    path: str
    headers: Mapping[str, str]
    body: Json
    raw: bytes


class ModelRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is an error of the provider.

    Attributes:
        status: The HTTP status, such as 429 or 400.
        message: The message of the error.
        retry_after: The value of the header `Retry-After`, in seconds; None: the answer has no such header.
    """

    status: int
    message: str = "refused by the script"
    retry_after: int | None = None


class ModelCut(msgspec.Struct, frozen=True):
    """A part of an answer: the connection is cut here, and the rest is never sent."""


class ModelHold:
    """A part of an answer: the model stops here until the test releases it.

    Args:
        timeout_seconds: How many seconds the test and the model wait for each other at most.
    """

    def __init__(self, timeout_seconds: float = 120.0) -> None:
        self._timeout = timeout_seconds
        self._reached, self._released = threading.Event(), threading.Event()

    async def reached(self) -> None:
        """Wait until the model has sent everything before this point.

        Raises:
            TimeoutError: No request got here in time.
        """
        await asyncio.to_thread(self.wait)

    def wait(self) -> None:
        """Like `reached`, for blocking tests.

        Raises:
            TimeoutError: No request got here in time.
        """
        if not self._reached.wait(self._timeout):
            raise TimeoutError(f"the scripted model did not get here within {self._timeout:g} s")

    def release(self) -> None:
        """Let the model continue, now and whenever it gets here again."""
        self._released.set()

    def stop_here(self) -> None:
        """Stop the calling thread until the release. The scripted model calls it.

        Raises:
            TimeoutError: The test released it too late.
        """
        self._reached.set()
        if not self._released.wait(self._timeout):
            raise TimeoutError(f"the test did not release the scripted model within {self._timeout:g} s")


AnswerPart = str | Text | Thought | ToolCall | Usage | ModelHold | ModelCut
StreamedPart = Text | Thought | ToolCall | Usage | ModelHold | ModelCut
FixedAnswer = AnswerPart | Sequence[AnswerPart] | ModelRefusal
ModelAnswer = FixedAnswer | Callable[[ModelRequest], FixedAnswer]


def check_answer(answer: ModelAnswer) -> None:
    """Check an answer of a script. An answer that is a function is checked when it is called.

    Raises:
        ConfigError: It is not an answer.
    """
    if not callable(answer):
        parts_of_answer(answer)


def parts_of_answer(answer: FixedAnswer) -> ModelRefusal | list[StreamedPart]:
    """The parts of an answer, in order.

    Raises:
        ConfigError: It is not an answer.
    """
    if isinstance(answer, ModelRefusal):
        return answer
    parts = [answer] if isinstance(answer, str) or not isinstance(answer, Sequence) else list(answer)
    for part in parts:
        if not isinstance(part, AnswerPart):
            raise ConfigError(f"{part!r} is not a part of a model's answer", hint=_HINT)
    return [Text(part) if isinstance(part, str) else part for part in parts]
