"""One SQLite transaction, as the verbs see it."""

import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

import apsw

from backstay.clock import Clock
from backstay.errors import CorruptRecord, InvalidPayload
from backstay.model.ids import IdSource, WorkerId
from backstay.model.limits import Limits
from backstay.model.search.terms import SearchQuery, fts5_expression, segmented
from backstay.store.engine import Lease, Overtaken, Parameter, Row, SeenLease, SyncNeeded
from backstay.store.queries import Queries

# The value of `PRAGMA synchronous` on a connection whose commits wait for the disk.
_FULL = 2


_STRING_OR_PARAMETER = re.compile(r"'[^']*'|:(\w+)")

# The text of a named statement, and its parameters in the order of their first use, which is how SQLite numbers them.
# SQLite would look up each name at every execution: for a row of twelve columns that takes a third of its insertion.
SqliteStatements = dict[str, tuple[str, Callable[[Mapping[str, Parameter]], tuple[Parameter, ...]]]]


def bound_by_number(queries: Queries) -> SqliteStatements:
    """The statements, with their parameters bound by number."""
    return {name: (sql, _in_order(sql)) for name, sql in queries.items()}


def _in_order(sql: str) -> Callable[[Mapping[str, Parameter]], tuple[Parameter, ...]]:
    names = list(dict.fromkeys(name for name in _STRING_OR_PARAMETER.findall(sql) if name))
    if len(names) > 1:
        return itemgetter(*names)
    return lambda parameters: tuple(parameters[name] for name in names)


class SqliteSettings(NamedTuple):
    """Settings common to all transactions of one worker."""

    statements: SqliteStatements
    clock: Clock
    ids: IdSource
    limits: Limits
    worker: WorkerId
    lease_ms: int
    lapsed: Callable[[Lease], bool]
    host: Callable[[], str]


class SqliteTransaction:
    """Named statements on one connection, with the worker's clock and locks."""

    __slots__ = ("_connection", "_now", "_setting", "ids", "limits", "seen_leases", "worker")

    finds_phrases = True
    ranks_by_count = True

    def __init__(self, connection: apsw.Connection, setting: SqliteSettings) -> None:
        self._connection = connection
        self._setting = setting
        self.limits, self.ids, self.worker = setting.limits, setting.ids, setting.worker
        self._now = 0
        self.seen_leases: list[SeenLease] = []

    @property
    def host(self) -> str:
        return self._setting.host()

    @property
    def now(self) -> int:
        if not self._now:
            self._now = self._setting.clock.now()
        return self._now

    def one(self, query: str, /, **parameters: Parameter) -> Row | None:
        sql, bound = self._setting.statements[query]
        try:
            row: Row | None = self._connection.execute(sql, bound(parameters)).fetchone()
        except UnicodeDecodeError as error:
            raise _mangled(query, error) from error
        except (UnicodeEncodeError, OverflowError, TypeError) as error:
            raise _unstorable(error) from error
        return row

    def all(self, query: str, /, **parameters: Parameter) -> list[Row]:
        sql, bound = self._setting.statements[query]
        try:
            return self._connection.execute(sql, bound(parameters)).fetchall()
        except UnicodeDecodeError as error:
            raise _mangled(query, error) from error
        except (UnicodeEncodeError, OverflowError, TypeError) as error:
            raise _unstorable(error) from error

    def expect(self, query: str, /, **parameters: Parameter) -> None:
        """Do nothing: SQLite answers at once."""

    def run(self, query: str, /, **parameters: Parameter) -> None:
        sql, bound = self._setting.statements[query]
        try:
            self._connection.execute(sql, bound(parameters))
        except (UnicodeEncodeError, OverflowError, TypeError) as error:
            raise _unstorable(error) from error

    def run_guarded(self, query: str, /, **parameters: Parameter) -> None:
        if not self.changed(query, **parameters):
            raise Overtaken(f"{query} changed no row")

    def changed(self, query: str, /, **parameters: Parameter) -> int:
        self.run(query, **parameters)
        return self._connection.changes()

    def run_many(self, query: str, rows: Sequence[Mapping[str, Parameter]], /) -> None:
        for row in rows:
            self.run(query, **row)

    def commit_unchanged(self) -> None:
        """Do nothing: SQLite shows a durable write to others only after it is on the disk."""

    def require_sync(self) -> None:
        if self._connection.pragma("synchronous") != _FULL:
            raise SyncNeeded

    def lease(self) -> tuple[int, str]:
        clock = self._setting.clock
        return clock.boot() + self._setting.lease_ms, clock.boot_id

    @property
    def lease_ms(self) -> int:
        return self._setting.lease_ms

    def is_here(self, lease: Lease) -> bool:
        """Always true: a process that opens the file is on this machine."""
        return True

    def lapsed(self, lease: Lease) -> bool:
        return self._setting.lapsed(lease)

    def indexable(self, owner_token: str, text: str) -> str:
        return segmented(text)

    def matching(self, owner_token: str, query: SearchQuery) -> str:
        return fts5_expression(query)

    def widened(self, query: SearchQuery, text: str) -> SearchQuery:
        return query


def _mangled(query: str, error: UnicodeDecodeError) -> CorruptRecord:
    """The error for a file that is damaged in a place that the database itself does not check."""
    return CorruptRecord(f"a row of {query}", f"contains invalid text: {error}")


def _unstorable(error: Exception) -> InvalidPayload:
    return InvalidPayload(
        f"a value cannot be stored: {error}", hint="Text must be valid Unicode, numbers must fit into 64 bits."
    )
