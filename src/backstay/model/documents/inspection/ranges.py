"""Half-open ranges of positions."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

Range = tuple[int, int]


def joined_ranges(ranges: Iterable[Range]) -> list[Range]:
    """The same ranges in order, with adjacent and overlapping ones merged."""
    joined: list[Range] = []
    for low, high in sorted(ranges):
        extend(joined, low, high)
    return joined


def extend(joined: list[Range], low: int, high: int) -> None:
    """Add a range that does not begin before the last one."""
    if joined and low <= joined[-1][1]:
        joined[-1] = (joined[-1][0], max(joined[-1][1], high))
    else:
        joined.append((low, high))


def cover(joined: Sequence[Range], low: int, high: int) -> bool:
    """Whether one of these ranges contains all positions from low to high."""
    index = bisect_right(joined, low, key=lambda one: one[0]) - 1
    return index >= 0 and joined[index][1] >= high
