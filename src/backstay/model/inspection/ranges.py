"""Ranges of positions, each from its first to the one after its last."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from backstay.model.message import Message

Range = tuple[int, int]


def runs(messages: Iterable[Message]) -> list[Range]:
    """The positions of these messages, as ranges."""
    return joined_ranges([(said.position, said.position + 1) for said in messages])


def joined_ranges(ranges: Iterable[Range]) -> list[Range]:
    """The same ranges in order, those that touch put together."""
    joined: list[Range] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return joined


def cover(joined: Sequence[Range], low: int, high: int) -> bool:
    """Whether one of these ranges holds all from low to high."""
    index = bisect_right(joined, low, key=lambda one: one[0]) - 1
    return index >= 0 and joined[index][1] >= high
