"""The database's clock, which all machines share: known from its answers, and carried on between them."""

from backstay.clock import Clock, SystemClock
from backstay.model.lease import Lease

SERVER = "server"


class ServerTime:
    """A clock that goes with the server's. Never ahead of it, so that no lease is taken for lapsed too early.

    A clock that is given stands in for the server's, on every handle that shares it.
    """

    def __init__(self, given: Clock | None) -> None:
        self._given = given
        self._own = SystemClock()
        self._ahead: int | None = None

    def heard(self, server: int) -> None:
        """The server has just said what time it is."""
        self._ahead = server - self._own.boot()

    @property
    def boot_id(self) -> str:
        return SERVER if self._given is None else self._given.boot_id

    def now(self) -> int:
        """Milliseconds since 1970 in UTC."""
        if self._given is not None:
            return self._given.now()
        return self._own.now() if self._ahead is None else self._own.boot() + self._ahead

    def boot(self) -> int:
        """What leases count in."""
        return self.now() if self._given is None else self._given.boot()

    def lapsed(self, lease: Lease) -> bool:
        """Whether the holder was silent for longer than its lease. A holder that closes lets its leases lapse."""
        return lease.boot_id != self.boot_id or lease.until <= self.boot()
