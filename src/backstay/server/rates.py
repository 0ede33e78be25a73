"""Rates: how often somebody may ask, as a bucket of tokens that fills with time."""

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

from backstay.server.problems import too_many

# Whoever has not asked for long has a full bucket, which need not be remembered.
MOST_BUCKETS = 10_000


class Rates:
    """Buckets by name; in this process only, so that several workers allow so many times more."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = monotonic) -> None:
        self._per_second, self._burst, self._clock = per_second, burst, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> None:
        """Count one request; 429 when the bucket is empty."""
        now = self._clock()
        left, since = self._buckets.pop(name, (float(self._burst), now))
        left = min(float(self._burst), left + (now - since) * self._per_second)
        if left < 1:
            self._buckets[name] = (left, now)
            raise too_many("there were too many requests", (1 - left) / self._per_second)
        self._buckets[name] = (left - 1, now)
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)
