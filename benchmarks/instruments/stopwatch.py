"""Processor time of two ways to do the same work, measured alternately, so that noise affects both alike."""

import gc
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import NamedTuple, TypeVar

T = TypeVar("T")
Work = Callable[[], object]


class Comparison(NamedTuple):
    """Seconds of processor time for one unit of work, and how they compare."""

    ours: float
    raw: float
    ratio: float

    def per(self, parts: int) -> "Comparison":
        """The same per part of a unit."""
        return Comparison(ours=self.ours / parts, raw=self.raw / parts, ratio=self.ratio)

    def detail(self, ours: str = "ours", raw: str = "raw") -> str:
        return f"{ours} {micros(self.ours)}, {raw} {micros(self.raw)}"


def compare(ours: Work, raw: Work, *, rounds: int, units: int) -> Comparison:
    """Run both alternately, in rounds of several units; the ratio is the median of the rounds' own ratios.

    Processor time of the whole process counts, including threads that work for a caller.
    """
    gc.collect()
    gc.freeze()
    pairs = []
    for index in range(rounds):
        if index % 2:
            first, second = spent(raw), spent(ours)
            pairs.append((second / units, first / units))
        else:
            first, second = spent(ours), spent(raw)
            pairs.append((first / units, second / units))
    gc.unfreeze()
    return Comparison(
        ours=median(pair[0] for pair in pairs),
        raw=median(pair[1] for pair in pairs),
        ratio=median(pair[0] / pair[1] for pair in pairs),
    )


def paired(ours: Callable[[], float], raw: Callable[[], float], *, rounds: int) -> Comparison:
    """Run both alternately; each returns its own seconds."""
    gc.collect()
    gc.freeze()
    pairs = [(ours(), raw()) for _ in range(rounds)]
    gc.unfreeze()
    mine, theirs = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
    return Comparison(ours=mine, raw=theirs, ratio=mine / theirs)


def as_a_server_would(work: Callable[[], T]) -> T:
    """Do the work on a thread other than the main one, where servers and event loops do it.

    A store needs no protection from signals on such a thread, as it does on the main one.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(work).result()


def spent(work: Work) -> float:
    """The processor time that the process spends while the work is done."""
    start = time.process_time()
    work()
    return time.process_time() - start


def micros(seconds: float) -> str:
    """Seconds as text in microseconds."""
    return f"{seconds * 1e6:,.0f} us" if seconds * 1e6 >= 100 else f"{seconds * 1e6:.1f} us"
