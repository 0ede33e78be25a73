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
from backstay.model.searchtext import SearchQuery, words
from backstay.store.engine import Parameter, Row
from backstay.store.postgres import wordlist
from backstay.store.postgres.servertime import ServerTime
from backstay.store.postgres.statements import Statements

# A verb's parameters are checked where they come in; what still cannot be sent is a value that nobody can store.
_UNSTORABLE = (UnicodeEncodeError, OverflowError)

# Which events and messages nobody can overtake any more: every key up to this one is committed or will never be.
# A writer announces, before it takes its first key, the last one that was given out, and of which sequence: there may
# be other stores in the same database, each in a schema of its own.
HORIZON = """
SELECT least(k.last_value, (
    SELECT min(k.last_value - ((k.last_value - CAST(l.objid AS bigint)) & 2147483647)) FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.classid = CAST('keys' AS regclass) AND l.objsubid = 2
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
)) FROM keys k
"""


class Setting(NamedTuple):
    """What all transactions of one worker have in common."""

    time: ServerTime
    ids: IdSource
    limits: Limits
    worker: WorkerId
    lease_ms: int


class PostgresTransaction:
    """Named statements on one connection, and the clock that goes with them."""

    __slots__ = ("_cursor", "_now", "_setting", "_statements", "_stems", "ids", "limits", "worker", "wrote")

    finds_phrases = False

    def __init__(self, cursor: Cursor[TupleRow], statements: Statements, setting: Setting) -> None:
        self._cursor, self._statements, self._setting = cursor, statements, setting
        self.limits, self.ids, self.worker = setting.limits, setting.ids, setting.worker
        self._now = 0
        self._stems: dict[str, set[str]] = {}
        self.wrote = False

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
        """One question for all rows: the statement takes a list for each of its parameters."""
        if rows:
            self._execute(query, {name: [row[name] for row in rows] for name in rows[0]})

    def vouch(self) -> None:
        # What can be seen may be on this server alone: a wait for a standby that was cut short, by an operator or with
        # a server that dies, leaves it so. The commit of this transaction is answered when the standby has both.
        self.wrote = True

    def lease(self) -> tuple[int, str]:
        time = self._setting.time
        return time.boot() + self._setting.lease_ms, time.boot_id

    def lapsed(self, lease: Lease) -> bool:
        return self._setting.time.lapsed(lease)

    def indexable(self, owner_token: str, text: str) -> str:
        return wordlist.vector(owner_token, text)

    def matching(self, owner_token: str, query: SearchQuery) -> str:
        self._stems = self._by_word("stems", query.inflected)
        return wordlist.expression(owner_token, query, self._stems)

    def widened(self, query: SearchQuery, text: str) -> SearchQuery:
        if not self._stems:
            return query
        forms = self._by_word("stems", words(text))
        return query.with_forms(
            {word: [form for form, found in forms.items() if found & stems] for word, stems in self._stems.items()}
        )

    def _by_word(self, query: str, found: Collection[str]) -> dict[str, set[str]]:
        """What the languages of this store say of each of these words."""
        said: dict[str, set[str]] = defaultdict(set)
        for word, stem in self.all(query, words=" ".join(set(found))):
            said[word].add(stem)
        return said

    def _execute(self, query: str, parameters: dict[str, Any]) -> Cursor[TupleRow]:  # Any: what the driver takes
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
                f"a value cannot be stored: {error}", hint="Text must be valid unicode, numbers must fit into 64 bits."
            ) from error

    def _horizon_now(self) -> int:
        """How far events and messages are settled. A statement that begins after this one sees all of them."""
        row = self._cursor.execute(HORIZON).fetchone()
        return row[0] if row else 0


class ReadingTransaction(PostgresTransaction):
    """One consistent snapshot, taken at the first statement; the horizon is asked for before that."""

    __slots__ = ("_begin", "_horizon")

    def __init__(
        self,
        cursor: Cursor[TupleRow],
        statements: Statements,
        setting: Setting,
        begin: Callable[[Cursor[TupleRow]], None],
    ) -> None:
        super().__init__(cursor, statements, setting)
        self._begin: Callable[[Cursor[TupleRow]], None] | None = begin
        self._horizon: int | None = None

    def _execute(self, query: str, parameters: dict[str, Any]) -> Cursor[TupleRow]:  # Any: what the driver takes
        if self._begin is not None:
            begin, self._begin = self._begin, None
            if self._statements[query].horizon:
                self._horizon = super()._horizon_now()
            begin(self._cursor)
        return super()._execute(query, parameters)

    def _horizon_now(self) -> int:
        if self._horizon is None:
            raise RuntimeError("the horizon must be asked for by the first statement, before the snapshot is taken")
        return self._horizon
