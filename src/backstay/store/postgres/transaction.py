"""One PostgreSQL transaction, as the verbs see it."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from psycopg import Cursor
from psycopg.rows import TupleRow

from backstay.errors import InvalidPayload
from backstay.model.ids import IdSource, WorkerId
from backstay.model.lease import Lease
from backstay.model.limits import Limits
from backstay.model.search.terms import SearchQuery, words
from backstay.store.engine import Holding, Parameter, Row, SyncNeeded
from backstay.store.postgres import tsvector
from backstay.store.postgres.lease_watch import LeaseWatch
from backstay.store.postgres.server_time import ServerTime
from backstay.store.postgres.statements import Statements

# Verbs check their parameters at the boundary. A value that still cannot be sent cannot be stored.
_UNSTORABLE = (UnicodeEncodeError, OverflowError)

# The horizon: every key up to this one is committed, or never will be, so no event or message can appear before it.
# Before it takes its first key, a writer announces the last assigned key, and the sequence: there may be other stores
# in the same database, each in a schema of its own.
HORIZON = """
SELECT least(k.last_value, (
    SELECT min(k.last_value - ((k.last_value - CAST(l.objid AS bigint)) & 2147483647)) FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.classid = CAST('keys' AS regclass) AND l.objsubid = 2
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
)) FROM keys k
"""


class WouldWrite(Exception):
    """The verb has something to change, so it must run in a transaction that writes."""


class PostgresSettings(NamedTuple):
    """Settings common to all transactions of one worker."""

    time: ServerTime
    watch: LeaseWatch
    ids: IdSource
    limits: Limits
    worker: WorkerId
    lease_ms: int
    host: Callable[[], str]


class PostgresTransaction:
    """Named statements on one connection, with the worker's clock."""

    __slots__ = (
        "_cursor",
        "_durable",
        "_now",
        "_setting",
        "_statements",
        "_stems",
        "ids",
        "limits",
        "met",
        "worker",
        "wrote",
    )

    finds_phrases = False

    def __init__(
        self, cursor: Cursor[TupleRow], statements: Statements, setting: PostgresSettings, *, durable: bool = True
    ) -> None:
        self._cursor, self._statements, self._setting, self._durable = cursor, statements, setting, durable
        self.limits, self.ids, self.worker = setting.limits, setting.ids, setting.worker
        self._now = 0
        self._stems: dict[str, set[str]] = {}
        self.wrote = False
        self.met: list[Holding] = []

    @property
    def host(self) -> str:
        return self._setting.host()

    @property
    def now(self) -> int:
        if not self._now:
            self._now = self._setting.time.now()
        return self._now

    def one(self, query: str, /, **parameters: Parameter) -> Row | None:
        return self._execute(query, parameters).fetchone()

    def all(self, query: str, /, **parameters: Parameter) -> list[Row]:
        return self._execute(query, parameters).fetchall()

    def run(self, query: str, /, **parameters: Parameter) -> int:
        return self._execute(query, parameters).rowcount

    def run_many(self, query: str, rows: Sequence[Mapping[str, Parameter]], /) -> None:
        """Run the statement once for all rows: it takes a list for each of its parameters."""
        if rows:
            self._execute(query, {name: [row[name] for row in rows] for name in rows[0]})

    def vouch(self) -> None:
        # A commit that we can see may be on this server alone: a wait for a standby may have been cut short by an
        # operator or a dying server. The commit of this transaction is answered only when the standby has both.
        self.wrote = True

    def require_sync(self) -> None:
        if not self._durable:
            raise SyncNeeded

    def lease(self) -> tuple[int, str]:
        time = self._setting.time
        return time.boot() + self._setting.lease_ms, time.boot_id

    @property
    def lease_ms(self) -> int:
        return self._setting.lease_ms

    def is_here(self, lease: Lease) -> bool:
        return self._setting.watch.is_here(lease)

    def lapsed(self, lease: Lease) -> bool:
        watch = self._setting.watch
        if watch.needs_stored(lease):
            watch.recall(self.all("sightings", boot_id=watch.boot_id))
        return watch.lapsed(lease)

    def indexable(self, owner_token: str, text: str) -> str:
        return tsvector.vector(owner_token, text)

    def matching(self, owner_token: str, query: SearchQuery) -> str:
        self._stems = self._by_word("stems", query.inflected)
        return tsvector.expression(owner_token, query, self._stems)

    def widened(self, query: SearchQuery, text: str) -> SearchQuery:
        if not self._stems:
            return query
        forms = self._by_word("stems", words(text))
        return query.with_forms(
            {word: [form for form, found in forms.items() if found & stems] for word, stems in self._stems.items()}
        )

    def _by_word(self, query: str, found: Collection[str]) -> dict[str, set[str]]:
        """The stems of each of these words in the languages of this store."""
        stems: dict[str, set[str]] = defaultdict(set)
        for word, stem in self.all(query, words=" ".join(set(found))):
            stems[word].add(stem)
        return stems

    def _execute(self, query: str, parameters: dict[str, Any]) -> Cursor[TupleRow]:  # Any: the driver's parameters
        before, text, writes, beyond = self._statements[query]
        self.wrote = self.wrote or writes
        try:
            if before is not None:
                self._cursor.execute(before, parameters)
            if beyond:
                parameters["horizon"] = self._horizon_now()
            return self._cursor.execute(text, parameters)
        except _UNSTORABLE as error:
            raise InvalidPayload(
                f"a value cannot be stored: {error}", hint="Text must be valid Unicode, numbers must fit into 64 bits."
            ) from error

    def _horizon_now(self) -> int:
        """The current horizon. A statement that begins after this one sees all events and messages up to it."""
        row = self._cursor.execute(HORIZON).fetchone()
        return row[0] if row else 0


class ReadingTransaction(PostgresTransaction):
    """One consistent snapshot, taken at the first statement; the horizon is read before that."""

    __slots__ = ("_begin", "_horizon")

    def __init__(
        self,
        cursor: Cursor[TupleRow],
        statements: Statements,
        setting: PostgresSettings,
        begin: Callable[[Cursor[TupleRow]], None],
    ) -> None:
        super().__init__(cursor, statements, setting)
        self._begin: Callable[[Cursor[TupleRow]], None] | None = begin
        self._horizon: int | None = None

    def _execute(self, query: str, parameters: dict[str, Any]) -> Cursor[TupleRow]:  # Any: the driver's parameters
        if self._begin is not None:
            begin, self._begin = self._begin, None
            if self._statements[query].horizon:
                # Before the snapshot: an event up to this horizon is then certainly in the snapshot.
                self._horizon = super()._horizon_now()
            begin(self._cursor)
        return super()._execute(query, parameters)

    def _horizon_now(self) -> int:
        if self._horizon is None:
            raise RuntimeError("the horizon must be read by the first statement, before the snapshot is taken")
        return self._horizon


class TrialTransaction(ReadingTransaction):
    """A snapshot for a verb that may have nothing to change; it stops at the first statement that writes."""

    __slots__ = ()

    def vouch(self) -> None:
        raise WouldWrite

    def _execute(self, query: str, parameters: dict[str, Any]) -> Cursor[TupleRow]:  # Any: the driver's parameters
        if self._statements[query].writes:
            raise WouldWrite
        return super()._execute(query, parameters)
