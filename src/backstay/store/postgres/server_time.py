"""The two clocks of a store on a server: the server's wall clock for times, this machine's boot clock for leases."""

from backstay.clock import Clock, SystemClock


class ServerTime:
    """Times are the server's: known from its answers, and advanced between them by the boot clock.

    Leases do not use it, because the server's clock can be set. They count on the boot clock of the machine that holds
    them.

    A given clock replaces both, on every handle that shares it.
    """

    def __init__(self, given: Clock | None) -> None:
        self._given = given
        self._own = given or SystemClock()
        self._ahead: int | None = None

    def set_server_time(self, server: int) -> None:
        """Take over the server's time, which was just read."""
        self._ahead = server - self._own.boot()

    def now(self) -> int:
        """Milliseconds since 1970 (UTC)."""
        if self._given is not None or self._ahead is None:
            return self._own.now()
        return self._own.boot() + self._ahead

    @property
    def boot_id(self) -> str:
        return self._own.boot_id

    def boot(self) -> int:
        """The clock of leases, in milliseconds."""
        return self._own.boot()
