"""The stored text: the same bytes for every peer. Standard library only: workers of all environments import it."""

from typing import NamedTuple

QUESTION_BYTES, ANSWER_BYTES, DELTA_BYTES, RESULT_BYTES = 500, 1_500, 500, 500

_WORDS = "the ship lies in the harbour and waits for the tide while the crew mends a sail and counts the ropes "


class Said(NamedTuple):
    """One message: who wrote it, and its text."""

    role: str
    text: str


def text(tag: str, size: int) -> str:
    """A text of exactly `size` bytes that begins with its tag."""
    start = f"{tag} "
    return (start + _WORDS * (size // len(_WORDS) + 1))[:size]


def tag_of(stored: str) -> str:
    """The tag that a stored text begins with."""
    return stored.partition(" ")[0]


def turn(tag: str) -> list[Said]:
    """A question and its answer, tagged `<tag>/user` and `<tag>/assistant`."""
    return [
        Said("user", text(f"{tag}/user", QUESTION_BYTES)),
        Said("assistant", text(f"{tag}/assistant", ANSWER_BYTES)),
    ]


def turns(tag: str, count: int) -> list[list[Said]]:
    """Many turns with numbered tags."""
    return [turn(f"{tag}.{number}") for number in range(count)]
