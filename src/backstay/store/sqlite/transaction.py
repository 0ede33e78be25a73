"""One SQLite transaction, as the verbs see it."""

from collections.abc import Callable

import apsw

from backstay.clock import Clock
from backstay.errors import InvalidPayload
from backstay.model.ids import IdSource, WorkerId
from backstay.model.lease import Lease
from backstay.model.limits import Limits
from backstay.store.engine import Parameter, Row
from backstay.store.queries import Queries


class SqliteTransaction:
    """Named statements on one connection, and the clocks and locks that go with them."""

    __slots__ = ("_clock", "_connection", "_lease_ms", "_queries", "ids", "lapsed", "limits", "now", "worker")

    def __init__(
        self,
        connection: apsw.Connection,
        *,
        queries: Queries,
        clock: Clock,
        ids: IdSource,
        limits: Limits,
        worker: WorkerId,
        lease_ms: int,
        lapsed: Callable[[Lease], bool],
    ) -> None:
        self._connection = connection
        self._queries = queries
        self._clock = clock
        self._lease_ms = lease_ms
        self.lapsed = lapsed
        self.now = clock.now()
        self.ids = ids
        self.limits = limits
        self.worker = worker

    def one(self, query: str, /, **parameters: Parameter) -> Row | None:
        try:
            row: Row | None = self._connection.execute(self._queries[query], parameters).fetchone()
        except (UnicodeEncodeError, OverflowError) as error:
            raise _unstorable(error) from error
        return row

    def all(self, query: str, /, **parameters: Parameter) -> list[Row]:
        try:
            return self._connection.execute(self._queries[query], parameters).fetchall()
        except (UnicodeEncodeError, OverflowError) as error:
            raise _unstorable(error) from error

    def run(self, query: str, /, **parameters: Parameter) -> int:
        try:
            self._connection.execute(self._queries[query], parameters)
        except (UnicodeEncodeError, OverflowError) as error:
            raise _unstorable(error) from error
        return self._connection.changes()

    def lease(self) -> tuple[int, str]:
        return self._clock.boot() + self._lease_ms, self._clock.boot_id


def _unstorable(error: Exception) -> InvalidPayload:
    return InvalidPayload(
        f"a value cannot be stored: {error}", hint="Text must be valid unicode, numbers fit into 64 bits."
    )
