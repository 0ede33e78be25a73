"""The open event streams: limits per server, owner and token, and closing all of them when the server stops."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from backstay.config import Settings
from backstay.server.auth.authenticator import Caller
from backstay.server.http.problems import Refused, too_many
from backstay.server.telemetry.metrics import Metrics


class OpenStreams:
    """The open streams of this process."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings, self._metrics = settings, metrics
        self._by_owner: Counter[str] = Counter()
        self._by_token: Counter[str] = Counter()
        self._waiting: set[asyncio.Event] = set()
        self.closing = False

    @contextmanager
    def counted(self, caller: Caller) -> Iterator[None]:
        """Count a stream while it is open."""
        owner, token = caller.owner, caller.token or ""
        self._by_owner[owner] += 1
        self._by_token[token] += 1
        self._metrics.streams.add(1)
        try:
            yield
        finally:
            _less(self._by_owner, owner)
            _less(self._by_token, token)
            self._metrics.streams.add(-1)

    @contextmanager
    def admitted(self, caller: Caller) -> Iterator[None]:
        """Inside the block, reserve a place for a stream that is about to open; raises like `admit`."""
        self.admit(caller)
        with self.counted(caller):
            yield

    @contextmanager
    def waking(self, news: asyncio.Event) -> Iterator[None]:
        """Inside the block, set this event when the server stops."""
        self._waiting.add(news)
        try:
            yield
        finally:
            self._waiting.discard(news)

    def close(self) -> None:
        """End every stream, and admit no other."""
        self.closing = True
        for news in self._waiting:
            news.set()

    def admit(self, caller: Caller) -> None:
        """Check that the caller may open another stream.

        Raises:
            Refused: The server is stopping, or a limit is reached.
        """
        if self.closing:
            raise Refused(503, "closing", "the server is stopping", hint="Connect again.", headers={"retry-after": "1"})
        if self._by_owner.total() >= self._settings.streams:
            raise Refused(
                503,
                "full",
                "this server has reached its limit of streams",
                hint="Try again later, or close other streams.",
                headers={"retry-after": "5"},
            )
        if self._by_owner[caller.owner] >= self._settings.streams_per_owner:
            raise too_many(f"owner {caller.owner} has too many open streams", 5)
        if self._by_token[caller.token or ""] >= self._settings.streams_per_token:
            raise too_many("this token has too many open streams", 5)


def _less(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
