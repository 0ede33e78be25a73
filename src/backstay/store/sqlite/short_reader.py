"""The short reader: reads on the caller's own thread, as long as they are short.

A read of a few rows takes less time than the switch to another thread and back. An event loop may therefore run it
itself, if it cannot take long: it has a budget of steps and waits for no lock.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

import apsw

from backstay.store.engine import WouldBlock
from backstay.store.sqlite.connection import close_quietly, on_one_snapshot, pragma
from backstay.store.sqlite.faults import breaks_connection, translated

T = TypeVar("T")

# SQLite asks after each tick of this many steps whether to go on. Ten of them take about half a millisecond.
_TICK = 1_000
_TICKS = 10


def data_version(connection: apsw.Connection) -> int:
    """A number that changes when another connection commits. SQLite keeps it in shared memory."""
    return pragma(connection, "data_version")


class ShortReader:
    """One connection for short reads. A read that another thread makes meanwhile does not wait for it."""

    def __init__(self, connection: apsw.Connection, path: str) -> None:
        self._connection: apsw.Connection | None = connection
        self._path = path
        self._in_use = threading.Lock()
        self._ticks = 0
        connection.set_busy_timeout(0)
        connection.set_progress_handler(self._is_over_budget, _TICK)

    @property
    def usable(self) -> bool:
        """Whether the connection is open."""
        return self._connection is not None

    def read(self, work: Callable[[apsw.Connection], T], *, snapshot: bool) -> T:
        """Run the work, on one snapshot or as a single statement.

        Raises:
            WouldBlock: the read would take long, or wait.
            StoreError: the database cannot be read.
        """
        if not self._in_use.acquire(blocking=False):
            raise WouldBlock
        try:
            if self._connection is None:
                raise WouldBlock
            self._ticks = 0
            return self._run(self._connection, work, snapshot=snapshot)
        except (apsw.InterruptError, apsw.BusyError) as error:
            raise WouldBlock from error
        except apsw.Error as error:
            if breaks_connection(error):
                self._close()
            raise translated(error, self._path) from error
        finally:
            self._in_use.release()

    def close(self) -> None:
        """Close the connection, after the read that uses it."""
        with self._in_use:
            self._close()

    def _run(self, connection: apsw.Connection, work: Callable[[apsw.Connection], T], *, snapshot: bool) -> T:
        if not snapshot:
            return work(connection)
        try:
            return on_one_snapshot(connection, work)
        except apsw.InterruptError:
            # The interrupted statement has ended the transaction, unless the interruption met its end.
            self._ticks = 0
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _is_over_budget(self) -> bool:
        # The steps of a statement count from its last tick, which may have been in an earlier read.
        self._ticks += 1
        return self._ticks > _TICKS

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            close_quietly(connection)
