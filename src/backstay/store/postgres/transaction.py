"""One PostgreSQL transaction, as the verbs see it."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from backstay.errors import InvalidPayload
from backstay.model.ids import IdSource, WorkerId
from backstay.model.limits import Limits
from backstay.model.search.terms import SearchQuery, words
from backstay.store.engine import Lease, Parameter, Row, SeenLease, SyncNeeded
from backstay.store.postgres import tsvector
from backstay.store.postgres.database import Ending
from backstay.store.postgres.protocol.pipeline import Pipeline, Receiver
from backstay.store.postgres.server_time import ServerTime
from backstay.store.postgres.statements import NumberedText, Statements
from backstay.store.postgres.watch.lease_watch import LeaseWatch

# Verbs check their parameters at the boundary. A value that still cannot be sent cannot be stored.
_UNSTORABLE = (UnicodeEncodeError, OverflowError)

# The horizon: every key up to this one is committed, or never will be, so no event or message can appear before it.
# Before it takes its first key, a writer announces the last assigned key, and the sequence: there may be other stores
# in the same database, each in a schema of its own.
HORIZON = b"""
SELECT least(k.last_value, (
    SELECT min(k.last_value - ((k.last_value - CAST(l.objid AS bigint)) & 2147483647)) FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.classid = CAST('keys' AS regclass) AND l.objsubid = 2
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
)) FROM keys k
"""


# Any: a `Parameter`, or the list of them that `run_many` sends at once.
_Parameters = dict[str, Any]
_Read = tuple[str, _Parameters]


class _Predicted(NamedTuple):
    """A read that was sent before the verb asked for it, and its rows."""

    query: str
    parameters: _Parameters
    rows: list[Row]


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
        "_confirms",
        "_durable",
        "_expected",
        "_now",
        "_pipeline",
        "_predicted",
        "_setting",
        "_statements",
        "_stems",
        "_wrote",
        "ids",
        "limits",
        "seen_leases",
        "worker",
    )

    finds_phrases = False
    ranks_by_count = False

    def __init__(
        self, pipeline: Pipeline, statements: Statements, setting: PostgresSettings, *, durable: bool = True
    ) -> None:
        self._pipeline, self._statements, self._setting, self._durable = pipeline, statements, setting, durable
        self.limits, self.ids, self.worker = setting.limits, setting.ids, setting.worker
        self._now = 0
        self._stems: dict[str, set[str]] = {}
        self._expected: list[_Read] = []
        self._predicted: list[_Predicted] = []
        self._wrote = self._confirms = False
        self.seen_leases: list[SeenLease] = []

    @property
    def host(self) -> str:
        return self._setting.host()

    @property
    def now(self) -> int:
        if not self._now:
            # The beginning of a transaction that writes brings the server's time.
            self._pipeline.start()
            self._now = self._setting.time.now()
        return self._now

    def one(self, query: str, /, **parameters: Parameter) -> Row | None:
        rows = self._rows(query, parameters)
        return rows[0] if rows else None

    def all(self, query: str, /, **parameters: Parameter) -> list[Row]:
        return self._rows(query, parameters)

    def expect(self, query: str, /, **parameters: Parameter) -> None:
        self._expected.append((query, parameters))

    def run(self, query: str, /, **parameters: Parameter) -> None:
        self._queue(query, parameters)

    def changed(self, query: str, /, **parameters: Parameter) -> int:
        text = self._prepare(query, parameters)
        try:
            return self._pipeline.changed(text.text, [parameters[name] for name in text.names])
        except _UNSTORABLE as error:
            raise _unstorable(error) from error

    def run_guarded(self, query: str, /, **parameters: Parameter) -> None:
        self._prepare(query, parameters)
        self._send(self._statements[query].guarded, parameters)

    def run_many(self, query: str, rows: Sequence[Mapping[str, Parameter]], /) -> None:
        """Run the statement once for all rows: it takes a list for each of its parameters."""
        if rows:
            self._queue(query, {name: [row[name] for row in rows] for name in rows[0]})

    def commit_unchanged(self) -> None:
        # A commit that we can see may be on this server alone: a wait for a standby may have been cut short by an
        # operator or a dying server. The commit of this transaction is answered only when the standby has both.
        self._confirms = True

    @property
    def ending(self) -> Ending:
        """How this transaction must end."""
        return "commit" if self._wrote else "confirm" if self._confirms else "undo"

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
            stems[str(word)].add(str(stem))
        return stems

    def _rows(self, query: str, parameters: _Parameters) -> list[Row]:
        if self._predicted or self._expected:
            return self._predicted_rows(query, parameters)
        text = self._prepare(query, parameters)
        try:
            return self._pipeline.rows(text.text, [parameters[name] for name in text.names])
        except _UNSTORABLE as error:
            raise _unstorable(error) from error

    def _predicted_rows(self, query: str, parameters: _Parameters) -> list[Row]:
        """The rows of a statement that was sent before, or else sent now, with all that are expected after it."""
        found = self._sent_before(query, parameters)
        if found is None:
            expected, self._expected = self._expected, []
            found = self._predict(query, parameters)
            for later in expected:
                self._sent_before(*later) or self._predict(*later)
            self._pipeline.flush()
        self._predicted.remove(found)
        return found.rows

    def _sent_before(self, query: str, parameters: _Parameters) -> _Predicted | None:
        return next((read for read in self._predicted if read[:2] == (query, parameters)), None)

    def _predict(self, query: str, parameters: _Parameters) -> _Predicted:
        found = _Predicted(query, dict(parameters), [])
        self._send(self._prepare(query, parameters), parameters, found.rows.extend)
        self._predicted.append(found)
        return found

    def _queue(self, query: str, parameters: _Parameters) -> None:
        self._send(self._prepare(query, parameters), parameters)

    def _prepare(self, query: str, parameters: _Parameters) -> NumberedText:
        """Queue the lock that a statement needs, and add the horizon to its parameters."""
        before, main, _, writes, beyond, tables = self._statements[query]
        if writes:
            self._wrote = True
            self._forget(tables)
        if before is not None:
            self._send(before, parameters)
        if beyond:
            parameters["horizon"] = self._horizon_now()
        return main

    def _forget(self, tables: frozenset[str]) -> None:
        """Forget rows of these tables that were read in advance, because they change."""
        if self._predicted:
            self._predicted = [read for read in self._predicted if not self._statements[read.query].tables & tables]

    def _send(
        self,
        text: NumberedText,
        parameters: _Parameters,
        receiver: Receiver | None = None,
    ) -> None:
        try:
            self._pipeline.queue(text.text, [parameters[name] for name in text.names], receiver=receiver)
        except _UNSTORABLE as error:
            raise _unstorable(error) from error

    def _horizon_now(self) -> int:
        """Return the current horizon. A statement that begins after this one sees all events and messages up to it."""
        ((horizon,),) = self._pipeline.rows(HORIZON)
        return msgspec.convert(horizon, int)


class ReadingTransaction(PostgresTransaction):
    """One consistent snapshot, taken at the first statement; the horizon is read before that."""

    __slots__ = ("_begun", "_horizon")

    def __init__(self, pipeline: Pipeline, statements: Statements, setting: PostgresSettings) -> None:
        super().__init__(pipeline, statements, setting)
        self._begun = False
        self._horizon: int | None = None

    def _prepare(self, query: str, parameters: _Parameters) -> NumberedText:
        if not self._begun:
            self._begun = True
            if self._statements[query].horizon:
                # Before the snapshot: an event up to this horizon is then certainly in the snapshot.
                self._horizon = super()._horizon_now()
            self._pipeline.begin_reading()
        return super()._prepare(query, parameters)

    def _horizon_now(self) -> int:
        if self._horizon is None:
            raise RuntimeError("the horizon must be read by the first statement, before the snapshot is taken")
        return self._horizon


class TrialTransaction(ReadingTransaction):
    """A snapshot for a verb that may have nothing to change; it stops at the first statement that writes."""

    __slots__ = ()

    def commit_unchanged(self) -> None:
        raise WouldWrite

    def _prepare(self, query: str, parameters: _Parameters) -> NumberedText:
        if self._statements[query].writes:
            raise WouldWrite
        return super()._prepare(query, parameters)


def _unstorable(error: Exception) -> InvalidPayload:
    return InvalidPayload(
        f"a value cannot be stored: {error}", hint="Text must be valid Unicode, numbers must fit into 64 bits."
    )
