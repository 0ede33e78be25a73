"""Errors about a document, with the location in it."""

from collections.abc import Iterator
from contextlib import contextmanager

from backstay.errors import InvalidPayload, NotFound, Rejected, TooLarge
from backstay.model.documents.document import AS_EXPORTED


def require(sound: bool, location: str, problem: str) -> None:
    """Raise `InvalidPayload` unless `sound`."""
    if not sound:
        raise InvalidPayload(f"{location} {problem}", hint=AS_EXPORTED)


@contextmanager
def at(location: str) -> Iterator[None]:
    """Errors raised inside the block are raised with this location in the document."""
    try:
        yield
    except (Rejected, NotFound) as error:
        kind = TooLarge if isinstance(error, TooLarge) else InvalidPayload
        raise kind(
            f"{location}: {error.args[0]}", hint=AS_EXPORTED if isinstance(error, NotFound) else error.hint
        ) from error


def is_hex(text: str, length: int) -> bool:
    """Whether this is a hash with this number of hexadecimal digits."""
    return len(text) == length and set(text) <= set("0123456789abcdef")
