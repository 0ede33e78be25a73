"""Opens the store: retries after a fault that can be temporary, and raises any other."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from backstay.errors import (
    ConfigError,
    CorruptRecord,
    SchemaMismatch,
    StoreArriving,
    StoreError,
    StoreMoved,
    UsedAfterFork,
)
from backstay.server.process.readiness import WorkersWaiting, reason_for
from backstay.server.telemetry.logs import log

T = TypeVar("T")

# Delays between two attempts, in seconds.
SHORTEST, LONGEST = 0.1, 5.0

# Waiting does not help here: an operator must change something and restart the server.
_PERMANENT = (ConfigError, SchemaMismatch, CorruptRecord, StoreMoved, UsedAfterFork)
# A store that was found damaged is opened so many times: SQLite reports a transient read error as damage, too.
_DAMAGE_TRIES = 5


def can_heal(error: Exception) -> bool:
    """Whether a later attempt may succeed without a restart of the server.

    Examples are a held lock, a full disk, a restarting database server, or a process without free file descriptors.
    These end by themselves, or when an operator acts elsewhere.
    """
    if isinstance(error, StoreArriving):
        return True  # Another process is still moving the store to this place.
    return isinstance(error, StoreError | OSError | MemoryError) and not isinstance(error, _PERMANENT)


class StoreBackoff:
    """Delays that double up to a limit."""

    def __init__(self, shortest: float = SHORTEST, longest: float = LONGEST) -> None:
        self._shortest, self._longest = shortest, longest
        self._next = shortest

    def delay(self) -> float:
        """The delay before the next attempt."""
        delay, self._next = self._next, min(self._next * 2, self._longest)
        return delay

    def reset(self) -> None:
        """Begin with the shortest delay again."""
        self._next = self._shortest


class OpeningObserver(Protocol):
    """Is notified while a worker opens its store."""

    async def waiting(self, waiting: WorkersWaiting) -> None:
        """The store cannot be opened now; another attempt follows."""

    async def opened(self) -> None:
        """The store is open. The worker accepts connections when this returns."""


class Unobserved:
    """Observes nothing: for servers that are embedded in another program."""

    async def waiting(self, waiting: WorkersWaiting) -> None:
        """Ignore it."""

    async def opened(self) -> None:
        """Return at once."""


async def retry_opening(attempt: Callable[[], Awaitable[T]], waiting: Callable[[WorkersWaiting], Awaitable[None]]) -> T:
    """Return the result of the first attempt that succeeds.

    Args:
        attempt: Opens the store.
        waiting: Called with the reason after each failed attempt.

    Raises:
        BackstayError: The attempt failed, and waiting would not help.
    """
    backoff, attempts, damaged = StoreBackoff(), 0, 0
    while True:
        attempts += 1
        try:
            opened = await attempt()
        except Exception as error:
            damaged += isinstance(error, CorruptRecord)
            in_doubt = isinstance(error, CorruptRecord) and damaged < _DAMAGE_TRIES
            if not (in_doubt or can_heal(error)):
                raise
            delay = backoff.delay()
            log.warning(
                "waiting for the store", extra={"error": str(error), "attempts": attempts, "retry_seconds": delay}
            )
            await waiting(reason_for(error))
            await asyncio.sleep(delay)
        else:
            if attempts > 1:
                log.info("the store is open", extra={"attempts": attempts})
            return opened
