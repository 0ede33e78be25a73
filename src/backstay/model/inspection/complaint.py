"""Complaints: what is wrong with a document, and where."""

from collections.abc import Iterator
from contextlib import contextmanager

from backstay.errors import InvalidPayload, NotFound, Rejected, TooLarge
from backstay.model.export import AS_EXPORTED


def require(sound: bool, place: str, problem: str) -> None:
    """Raise unless it is sound."""
    if not sound:
        raise InvalidPayload(f"{place} {problem}", hint=AS_EXPORTED)


@contextmanager
def at(place: str) -> Iterator[None]:
    """Whatever is refused inside is refused with its place in the document."""
    try:
        yield
    except (Rejected, NotFound) as error:
        kind = TooLarge if isinstance(error, TooLarge) else InvalidPayload
        raise kind(
            f"{place}: {error.args[0]}", hint=AS_EXPORTED if isinstance(error, NotFound) else error.advice
        ) from error


def is_hex(text: str, length: int) -> bool:
    """Whether this is a hash of so many hexadecimal digits."""
    return len(text) == length and set(text) <= set("0123456789abcdef")
