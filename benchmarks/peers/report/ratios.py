"""Ratios: floor time divided by the time of a peer, paired round by round. Pure."""

from collections.abc import Sequence
from statistics import median

import msgspec


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds per operation of a peer and of the floor, measured one after the other."""

    floor: float
    peer: float

    @property
    def ratio(self) -> float:
        return self.floor / self.peer


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The median of the ratios of all rounds, and their extremes."""

    median: float
    low: float
    high: float
    rounds: int

    def __str__(self) -> str:
        return f"{shown(self.median)} ({shown(self.low)}–{shown(self.high)})"


def spread(pairs: Sequence[Pair]) -> Spread:
    """Summarise rounds.

    Raises:
        ValueError: There are no rounds.
    """
    if not pairs:
        raise ValueError("a spread needs at least one round")
    found = [pair.ratio for pair in pairs]
    return Spread(median=median(found), low=min(found), high=max(found), rounds=len(found))


def shown(ratio: float) -> str:
    """A ratio with two significant digits, and never in scientific notation."""
    if ratio >= 9.95:
        return f"{ratio:.0f}"
    if ratio >= 0.995:
        return f"{ratio:.1f}"
    if ratio >= 0.0995:
        return f"{ratio:.2f}"
    return f"{ratio:.3f}" if ratio >= 0.00995 else f"{ratio:.4f}"


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which a part (0 to 1) of the values lies; the nearest one that was measured.

    Raises:
        ValueError: There are no values.
    """
    if not values:
        raise ValueError("a percentile needs at least one value")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
