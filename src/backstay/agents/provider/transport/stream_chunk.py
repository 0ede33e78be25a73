"""One event of a provider's stream, as far as the transport needs to understand it."""

from typing import Protocol, TypeVar

from backstay.model.content import Json


class StreamChunk(Protocol):
    """A decoded event."""

    @property
    def has_output(self) -> bool:
        """Whether it has text, reasoning or a part of a tool call. After that, a request is not repeated."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the answer is complete."""
        ...

    @property
    def error(self) -> Json:
        """The error in the stream; None if there is none."""
        ...


ChunkT = TypeVar("ChunkT", bound=StreamChunk)
