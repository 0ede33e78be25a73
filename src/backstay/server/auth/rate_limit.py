"""The rate limit: a token bucket per client."""

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

from backstay.server.http.problems import too_many

# The bucket of a client that was idle for long is full, so it need not be kept.
MOST_BUCKETS = 10_000


class RateLimiter:
    """Buckets by name. Each process has its own, so several workers together allow that many times more requests."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = monotonic) -> None:
        self._per_second, self._burst, self._clock = per_second, burst, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> None:
        """Count one request.

        Raises:
            Refused: The bucket is empty (429).
        """
        now = self._clock()
        remaining, since = self._buckets.pop(name, (float(self._burst), now))
        remaining = min(float(self._burst), remaining + (now - since) * self._per_second)
        if remaining < 1:
            self._buckets[name] = (remaining, now)
            raise too_many("too many requests", (1 - remaining) / self._per_second)
        self._buckets[name] = (remaining - 1, now)
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)
