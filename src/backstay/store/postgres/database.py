"""The database: a pool of connections, transactions that are run until they are decided, and lost answers looked up."""

import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar, cast

import psycopg
from psycopg import Cursor
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool, PoolTimeout

from backstay.errors import BackstayError, CommitUnknown, StoreError, StoreUnavailable, UsedAfterFork
from backstay.store.engine import Overtaken
from backstay.store.postgres.conninfo import Place
from backstay.store.postgres.faults import UNREACHED, lost, overtaken, translated
from backstay.store.postgres.wire import Watchdog, Wire
from backstay.store.signals import with_ctrl_c_held

T = TypeVar("T")
Work = Callable[[Cursor[TupleRow]], T]
Writing = Callable[[Cursor[TupleRow], int], tuple[T, bool]]

# What the pool warns of we mend or raise; without this it would go to the terminal of a program that does not log.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())

# Each time somebody else was first; a verb that still meets itself after so many times has found a fault of ours.
TRIES = 100
PAUSE = 0.1
LONGEST = (1 << 31) - 1

# How a transaction begins: leaves the writer's mark, announces its keys, and tells the time.
_MARK = """
INSERT INTO commits (writer, number, at)
VALUES ({writer}, {number}, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint))
ON CONFLICT (writer) DO UPDATE SET number = excluded.number, at = excluded.at
RETURNING at, pg_advisory_xact_lock_shared(
    CAST(CAST(CAST('keys' AS regclass) AS oid) AS int), (SELECT CAST(last_value & 2147483647 AS int) FROM keys)
)
"""
# A hint is worth no wait for the disk.
_HINT = """
BEGIN; SET LOCAL synchronous_commit = off;
SELECT pg_notify('backstay_' || CAST(CAST('keys' AS regclass) AS oid), '{name}'); COMMIT
"""
_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; "
# The wait for a standby must not be cut short by a timeout: the server would answer as if it had been waited for.
_COMMIT = "SET LOCAL statement_timeout = 0; COMMIT"
# Waits for a transaction of this writer that may still be under way. It changes nothing, yet counts as a write.
_LOOK_UP = """
INSERT INTO commits (writer, number) VALUES (%s, 0)
ON CONFLICT (writer) DO UPDATE SET number = commits.number RETURNING number
"""


class Unanswered(Exception):
    """The connection was lost while it committed; what the work returned is true only if that has happened."""

    def __init__(self, writer: str, number: int, value: object) -> None:
        super().__init__(f"no answer to commit {number} of {writer}")
        self.writer, self.number, self.value = writer, number, value


class Database:
    """Runs work in transactions. Work that was overtaken or cut off is run again, as a whole, until time is up."""

    def __init__(self, place: Place, *, name: str, wait_seconds: float, patience: float) -> None:
        self.place = place
        self._name, self._wait, self._patience = name, wait_seconds, patience
        self._pid = os.getpid()
        self._numbers = itertools.count(1)
        self._failure: Exception | None = None
        self._closed = threading.Event()
        self._watchdog = Watchdog(wait_seconds * 3 + 5)
        self._settings = {
            "lock_timeout": _timeout(wait_seconds, least=1),
            "statement_timeout": _timeout(wait_seconds * 3, least=1_000),
            "idle_in_transaction_session_timeout": _timeout(wait_seconds, least=1_000),
        }
        self._pool = ConnectionPool(
            place.conninfo,
            connection_class=Wire,
            kwargs={"name": self._next_name, "settings": self._settings, "failed": self._failed},
            min_size=0,
            max_size=place.connections,
            open=False,
            # Who waits for a connection asks again; the pool need not try by itself, and later and later.
            reconnect_timeout=0.0,
            num_workers=1,
        )
        self._pool.open()

    def connect(self) -> Wire:
        """A connection of one's own, at once or not at all."""
        try:
            return Wire.connect(self.place.conninfo, name=self._next_name, settings=self._settings, failed=self._failed)
        except psycopg.Error as error:
            raise translated(error, str(self.place)) from error

    def close(self) -> None:
        """Let go of every connection."""
        self._closed.set()
        self._watchdog.close()
        if os.getpid() == self._pid:
            self._pool.close()

    # --- writing ----------------------------------------------------------------------------------------------------

    def write(self, work: Writing[T], *, durable: bool) -> tuple[T, bool]:
        """Run the work in a transaction of its own and return, once that is committed, what the work returned.

        The work gets the server's time, and says with its result whether it wrote anything.
        """
        return self._until_decided(lambda wire: self._transact(wire, work, durable=durable))

    def _transact(self, wire: Wire, work: Writing[T], *, durable: bool) -> tuple[T, bool]:
        wire.number += 1
        with wire.cursor() as cursor:
            try:
                value, wrote = work(cursor, self._begin(cursor, wire, durable=durable))
            except BaseException:
                wire.roll_back()
                raise
            if wrote:
                self._commit(cursor, wire, (value, wrote))
            else:
                wire.roll_back()
        return value, wrote

    def _begin(self, cursor: Cursor[TupleRow], wire: Wire, *, durable: bool) -> int:
        """Open the transaction, in one question; the server's time."""
        opening = wire.opening if durable else wire.light_opening
        cursor.execute(f"{opening}{self._mark(cursor, wire)}".encode())
        while cursor.nextset():
            pass
        row = cursor.fetchone()
        return int(row[0]) if row else 0

    def _mark(self, cursor: Cursor[TupleRow], wire: Wire) -> str:
        if not wire.keeps_statements:
            return _MARK.format(writer=f"'{wire.writer}'", number=wire.number)
        if not wire.prepared:
            # Planned once per connection, which halves what it costs to begin.
            cursor.execute(f"PREPARE backstay_mark (text, bigint) AS {_MARK.format(writer='$1', number='$2')}".encode())
            wire.prepared = True
        return f"EXECUTE backstay_mark ('{wire.writer}', {wire.number})"

    @staticmethod
    def _commit(cursor: Cursor[TupleRow], wire: Wire, value: object) -> None:
        """A Ctrl-C before this undoes the transaction; from here on it waits until we know what became of it."""
        try:
            with_ctrl_c_held(lambda: cursor.execute(_COMMIT))
        except psycopg.Error as error:
            if not lost(error, wire):
                raise
            raise Unanswered(wire.writer, wire.number, value) from error

    def _look_up(self, lost: Unanswered, deadline: float) -> bool:
        """Whether a transaction has happened whose answer was lost; if not, there is still time to run it again."""
        if self._was_committed(lost.writer, lost.number):
            return True
        if time.monotonic() >= deadline and isinstance(lost.__cause__, psycopg.Error):
            raise translated(lost.__cause__, str(self.place)) from lost.__cause__
        return False

    def _was_committed(self, writer: str, number: int) -> bool:
        """Whether the transaction whose answer was lost has happened; it will not happen later.

        One that is seen may be on this server alone, if its wait for a standby was cut short with its connection. So
        the question itself is committed: when that is answered, all that was committed before is where it is.
        """
        deadline = time.monotonic() + self._patience
        while True:
            try:
                with self._wire(deadline) as wire, wire.cursor() as cursor:
                    cursor.execute(wire.opening.encode())
                    row = cursor.execute(_LOOK_UP, (writer,)).fetchone()
                    if row is None or row[0] != number:
                        wire.roll_back()
                        return False
                    cursor.execute(_COMMIT)
                    return True
            except (psycopg.Error, StoreUnavailable) as error:
                if time.monotonic() >= deadline or self._closed.is_set():
                    raise CommitUnknown(f"{self.place} was lost while it committed, and does not answer") from error
                self._closed.wait(PAUSE)

    # --- reading ----------------------------------------------------------------------------------------------------

    @staticmethod
    def begin_reading(cursor: Cursor[TupleRow]) -> None:
        """Take one consistent snapshot with the next statement, and show it until the work is done."""
        wire = cursor.connection
        cursor.execute((_READING + (wire.timeouts if isinstance(wire, Wire) else "")).encode())

    def read(self, work: Work[T]) -> T:
        """Run work that only reads, in whatever transaction it begins for itself."""
        return self._until_decided(lambda wire: self._look(wire, work))

    def _look(self, wire: Wire, work: Work[T]) -> T:
        with wire.cursor() as cursor:
            try:
                found = work(cursor)
                if wire.in_transaction:
                    cursor.execute("COMMIT")
            except BaseException:
                wire.roll_back()
                raise
        return found

    # --- hints ------------------------------------------------------------------------------------------------------

    def hint(self, name: str) -> None:
        """Tell whoever listens that this worker has committed something. Nobody depends on it, so it may fail."""
        with suppress(BackstayError):
            self.read(lambda cursor: cursor.execute(_HINT.format(name=name).encode()))

    # --- within -----------------------------------------------------------------------------------------------------

    def _until_decided(self, attempt: Callable[[Wire], T]) -> T:
        """Attempt it again while others are first or the server is away, for a bounded time."""
        deadline = time.monotonic() + self._wait
        last: Exception | None = None
        for tried in range(TRIES):
            unanswered: Unanswered | None = None
            with self._wire(deadline) as wire:
                try:
                    return attempt(wire)
                except Unanswered as error:
                    last = unanswered = error
                except Overtaken as error:
                    last = error
                except psycopg.Error as error:
                    last = error
                    if not overtaken(error):
                        self._refuse(error, wire, deadline)
            # Only now that its connection is given back: all may be lost at once, and each needs one to ask on.
            if unanswered is not None and self._look_up(unanswered, deadline):
                return cast(T, unanswered.value)  # what the attempt would have returned
            # Idle connections may all have died with this one; only then is the server itself waited for.
            self._closed.wait(PAUSE if tried > self.place.connections else 0)
        raise StoreError(f"{self.place} let others go first {TRIES} times: {last}") from last

    def _refuse(self, error: psycopg.Error, wire: Wire, deadline: float) -> None:
        """Raise, unless the connection was cut off and there is still time for another one."""
        if not lost(error, wire) or time.monotonic() >= deadline:
            raise translated(error, str(self.place)) from error

    @contextmanager
    def _wire(self, deadline: float) -> Iterator[Wire]:
        wire = self._take(deadline)
        try:
            with self._watchdog.watching(wire):
                yield wire
        finally:
            self._pool.putconn(wire)

    def _take(self, deadline: float) -> Wire:
        self._refuse_unusable()
        while True:
            self._failure = None
            try:
                wire = self._pool.getconn(min(1.0, max(0.05, deadline - time.monotonic())))
            except PoolTimeout:
                if isinstance(self._failure, BackstayError):
                    raise self._failure from None
                if time.monotonic() >= deadline:
                    raise self._away() from self._failure
                self._refuse_unusable()
            else:
                if not wire.closed:
                    return wire
                self._pool.putconn(wire)

    def _away(self) -> BackstayError:
        if isinstance(self._failure, psycopg.Error):
            return translated(self._failure, str(self.place))
        if self._watchdog.watched < self.place.connections:
            return StoreUnavailable(f"no connection to {self.place} came about in {self._wait:g} s", hint=UNREACHED)
        return StoreUnavailable(
            f"all {self.place.connections} connections to {self.place} were in use for {self._wait:g} s",
            hint="Try again, run fewer turns in one process, or allow it more with ?connections=32 in the URL.",
        )

    def _refuse_unusable(self) -> None:
        if os.getpid() != self._pid:
            raise UsedAfterFork(f"{self.place} was opened by process {self._pid}")
        if self._closed.is_set():
            raise StoreUnavailable(f"{self.place} is closed", hint="Open the store again.")

    def _next_name(self) -> str:
        return f"{self._name}.{next(self._numbers)}"

    def _failed(self, error: Exception | None) -> None:
        self._failure = error


def _timeout(seconds: float, *, least: int) -> str:
    """A time as the server takes it. None would be no limit at all, and it cannot count further than this."""
    return f"{min(max(round(seconds * 1000), least), LONGEST)}ms"
