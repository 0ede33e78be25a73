"""The database: a connection pool, transactions that are retried until decided, and commits whose answer was lost."""

import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal, TypeVar, cast

import msgspec
import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from backstay.concurrency.ctrl_c import with_ctrl_c_held
from backstay.errors import BackstayError, CommitUnknown, StoreError, StoreUnavailable, UsedAfterFork
from backstay.store.engine import Overtaken
from backstay.store.postgres.connection import ServerConnection, Watchdog
from backstay.store.postgres.conninfo import ConnectionTarget
from backstay.store.postgres.faults import UNREACHED, lost, overtaken, translated
from backstay.store.postgres.protocol.pipeline import Pipeline

T = TypeVar("T")
Work = Callable[[Pipeline], T]
Ending = Literal["commit", "confirm", "undo"]
"""How a transaction ends.

Whether it changed something; or changed nothing, but must prove that earlier commits are durable; or can be undone.
"""
Writing = Callable[[Pipeline], tuple[T, Ending]]

# Problems that the pool warns about are repaired or raised here. Without this handler the warnings would go to the
# terminal of a program without logging configuration.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())

# Each attempt was overtaken by another transaction. A verb that fails this often shows a defect in Backstay.
TRIES = 100
PAUSE = 0.1
LONGEST = (1 << 31) - 1

# The start of a transaction: sets the writer's mark, announces its keys, and returns the time.
_MARK = b"""
INSERT INTO commits (writer, number, at)
VALUES ($1, $2, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint))
ON CONFLICT (writer) DO UPDATE SET number = excluded.number, at = excluded.at
RETURNING at, pg_advisory_xact_lock_shared(
    CAST(CAST(CAST('keys' AS regclass) AS oid) AS int), (SELECT CAST(last_value & 2147483647 AS int) FROM keys)
)
"""
# The end of a transaction that changed nothing: the mark is as before, so that the version stays the same.
_UNMARK = b"UPDATE commits SET number = $2 WHERE writer = $1"
_REMOVE_MARK = b"DELETE FROM commits WHERE writer = $1"
# A hint need not wait for the disk.
_HINT = """
BEGIN; SET LOCAL synchronous_commit = off;
SELECT pg_notify('backstay_' || CAST(CAST('keys' AS regclass) AS oid), '{name}'); COMMIT
"""
# Waits for a transaction of this writer that may still be running. It changes nothing, yet counts as a write.
_LOOK_UP = b"""
INSERT INTO commits (writer, number) VALUES ($1, 0)
ON CONFLICT (writer) DO UPDATE SET number = commits.number RETURNING number
"""


class Unanswered(Exception):
    """The connection was lost during a commit.

    `value` is the result of the work, and valid only if the commit happened.
    """

    def __init__(self, writer: str, number: int, value: object) -> None:
        super().__init__(f"no answer to commit {number} of {writer}")
        self.writer, self.number, self.value = writer, number, value


class PostgresDatabase:
    """Runs work in transactions. Work that was overtaken or cut off is run again, as a whole, until the deadline."""

    def __init__(self, target: ConnectionTarget, *, name: str, wait_seconds: float, look_up_seconds: float) -> None:
        self.target = target
        self._name, self._wait, self._look_up_seconds = name, wait_seconds, look_up_seconds
        self._pid = os.getpid()
        self._numbers = itertools.count(1)
        self._failure: Exception | None = None
        self.disconnected_at = 0
        """When a connection was last found broken, in nanoseconds of the monotonic clock."""
        self._closed = threading.Event()
        self._watchdog = Watchdog(wait_seconds * 3 + 5)
        self._settings = {
            "lock_timeout": _timeout(wait_seconds, least=1),
            "statement_timeout": _timeout(wait_seconds * 3, least=1_000),
            "idle_in_transaction_session_timeout": _timeout(wait_seconds, least=1_000),
        }
        self._pool = ConnectionPool(
            target.conninfo,
            connection_class=ServerConnection,
            kwargs={"name": self._next_name, "settings": self._settings, "failed": self._failed},
            min_size=0,
            max_size=target.connections,
            open=False,
            # A waiting caller requests a connection again. The pool need not retry by itself, with growing delays.
            reconnect_timeout=0.0,
            num_workers=1,
        )
        self._pool.open()

    def connect(self) -> ServerConnection:
        """A separate connection, without waiting for one."""
        try:
            return ServerConnection.connect(
                self.target.conninfo, name=self._next_name, settings=self._settings, failed=self._failed
            )
        except psycopg.Error as error:
            raise translated(error, str(self.target)) from error

    def close(self) -> None:
        """Close every connection."""
        self._closed.set()
        self._watchdog.close()
        if os.getpid() == self._pid:
            self._pool.close()

    # --- writing ----------------------------------------------------------------------------------------------------

    def write(self, work: Writing[T], *, durable: bool, set_time: Callable[[int], None]) -> tuple[T, Ending]:
        """Run the work in a transaction of its own, and return its result once that is committed or undone.

        The work returns with its result how the transaction must end. `set_time` gets the server's time.
        """
        return self._until_decided(
            lambda connection: self._transact(connection, work, durable=durable, set_time=set_time)
        )

    def _transact(
        self, connection: ServerConnection, work: Writing[T], *, durable: bool, set_time: Callable[[int], None]
    ) -> tuple[T, Ending]:
        # The number grows first, so that a lost commit is never mistaken for an earlier one of this connection.
        connection.number += 1
        pipeline = Pipeline(connection)
        try:
            self._begin(pipeline, connection, durable=durable, set_time=set_time)
            value, ending = work(pipeline)
            if ending == "confirm":
                self._restore_mark(pipeline, connection)
            if ending != "undo":
                self._commit(pipeline, connection, (value, ending))
        except BaseException:
            connection.roll_back()
            raise
        if ending == "undo":
            connection.roll_back()
        elif ending == "commit":
            connection.committed = connection.number
        return value, ending

    @staticmethod
    def _begin(
        pipeline: Pipeline, connection: ServerConnection, *, durable: bool, set_time: Callable[[int], None]
    ) -> None:
        """Begin the transaction together with the first statement of the work."""
        for text in connection.opening if durable else connection.light_opening:
            pipeline.queue(text)
        pipeline.queue(
            _MARK,
            (connection.writer, connection.number),
            receiver=lambda rows: set_time(msgspec.convert(rows[0][0], int)),
        )

    @staticmethod
    def _commit(pipeline: Pipeline, connection: ServerConnection, value: object) -> None:
        """Commit, together with the last statements of the work.

        A Ctrl-C before this undoes the transaction; from here on it is deferred until the result is known.
        """
        # The server must have set the mark before it can get the COMMIT. Otherwise a look-up could come between them,
        # find nothing, and let the work run twice.
        pipeline.start()
        try:
            with_ctrl_c_held(pipeline.commit)
        except psycopg.Error as error:
            if pipeline.rejected or not lost(error, connection):
                raise
            raise Unanswered(connection.writer, connection.number, value) from error

    @staticmethod
    def _restore_mark(pipeline: Pipeline, connection: ServerConnection) -> None:
        # If the answer to this commit is lost, the look-up finds another number, and the work is run again: it changes
        # nothing.
        if connection.committed is None:
            pipeline.queue(_REMOVE_MARK, (connection.writer,))
        else:
            pipeline.queue(_UNMARK, (connection.writer, connection.committed))

    def _look_up(self, lost: Unanswered, deadline: float) -> bool:
        """Whether a transaction whose answer was lost has happened.

        False only if there is still time to run it again.
        """
        if self._was_committed(lost.writer, lost.number):
            return True
        if time.monotonic() >= deadline and isinstance(lost.__cause__, psycopg.Error):
            raise translated(lost.__cause__, str(self.target)) from lost.__cause__
        return False

    def _was_committed(self, writer: str, number: int) -> bool:
        """Whether the transaction whose answer was lost has happened. If not, it will not happen later.

        A commit that we can see may be on this server alone, if the wait for a standby was cut short with the
        connection. So this query is itself a commit: once it is answered, all earlier commits are on the standby too.
        """
        deadline = time.monotonic() + self._look_up_seconds
        while True:
            try:
                with self._connection(deadline) as connection:
                    return self._find_mark(Pipeline(connection), connection, writer, number)
            except (psycopg.Error, StoreUnavailable) as error:
                if time.monotonic() >= deadline or self._closed.is_set():
                    raise CommitUnknown(f"{self.target} was lost during a commit, and does not answer") from error
                self._closed.wait(PAUSE)

    @staticmethod
    def _find_mark(pipeline: Pipeline, connection: ServerConnection, writer: str, number: int) -> bool:
        try:
            for text in connection.opening:
                pipeline.queue(text)
            ((found,),) = pipeline.rows(_LOOK_UP, (writer,))
            if found == number:
                pipeline.commit()
        finally:
            connection.roll_back()
        return bool(found == number)

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(self, work: Work[T]) -> T:
        """Run work that only reads, in the transaction that it begins for itself, if any."""
        return self._until_decided(lambda connection: self._look(connection, work))

    def _look(self, connection: ServerConnection, work: Work[T]) -> T:
        pipeline = Pipeline(connection)
        try:
            found = work(pipeline)
            if connection.in_transaction:
                pipeline.queue(b"COMMIT")
                pipeline.flush()
        except BaseException:
            connection.roll_back()
            raise
        return found

    # --- hints ------------------------------------------------------------------------------------------------------

    def hint(self, name: str) -> None:
        """Notify listeners that this worker has committed. Nothing depends on it, so it may fail."""
        with suppress(BackstayError):
            self._until_decided(lambda connection: connection.execute(_HINT.format(name=name).encode()))

    # --- internal ---------------------------------------------------------------------------------------------------

    def _until_decided(self, attempt: Callable[[ServerConnection], T]) -> T:
        """Retry while other transactions are first or the server is away, until the deadline."""
        deadline = time.monotonic() + self._wait
        last: Exception | None = None
        for tried in range(TRIES):
            unanswered: Unanswered | None = None
            with self._connection(deadline) as connection:
                try:
                    return attempt(connection)
                except Unanswered as error:
                    last = unanswered = error
                except Overtaken as error:
                    last = error
                except psycopg.Error as error:
                    last = error
                    if not overtaken(error):
                        self._refuse(error, connection, deadline)
            # Only now that the connection is returned: all may be lost at once, and each look-up needs another one.
            if unanswered is not None and self._look_up(unanswered, deadline):
                return cast(T, unanswered.value)  # what the attempt would have returned
            # All idle connections may have died with this one. Wait for the server only after each was tried.
            self._closed.wait(PAUSE if tried > self.target.connections else 0)
        raise StoreError(f"{self.target}: the transaction was overtaken {TRIES} times: {last}") from last

    def _refuse(self, error: psycopg.Error, connection: ServerConnection, deadline: float) -> None:
        """Raise, unless the connection was cut off and there is still time for another one."""
        if not lost(error, connection) or time.monotonic() >= deadline:
            raise translated(error, str(self.target)) from error

    @contextmanager
    def _connection(self, deadline: float) -> Iterator[ServerConnection]:
        connection = self._take(deadline)
        try:
            with self._watchdog.watching(connection):
                yield connection
        finally:
            self._give_back(connection)

    def _give_back(self, connection: ServerConnection) -> None:
        if connection.closed:
            self.disconnected_at = time.monotonic_ns()
        self._pool.putconn(connection)

    def _take(self, deadline: float) -> ServerConnection:
        self._refuse_unusable()
        while True:
            self._failure = None
            try:
                connection = self._pool.getconn(min(1.0, max(0.05, deadline - time.monotonic())))
            except PoolTimeout:
                if isinstance(self._failure, BackstayError):
                    raise self._failure from None
                if time.monotonic() >= deadline:
                    raise self._no_connection() from self._failure
                self._refuse_unusable()
            else:
                if not connection.closed:
                    return connection
                self._give_back(connection)

    def _no_connection(self) -> BackstayError:
        if isinstance(self._failure, psycopg.Error):
            return translated(self._failure, str(self.target))
        if self._watchdog.watched < self.target.connections:
            return StoreUnavailable(f"could not connect to {self.target} within {self._wait:g} s", hint=UNREACHED)
        return StoreUnavailable(
            f"all {self.target.connections} connections to {self.target} were in use for {self._wait:g} s",
            hint="Try again, run fewer turns in one process, or allow it more with ?connections=32 in the URL.",
        )

    def _refuse_unusable(self) -> None:
        if os.getpid() != self._pid:
            raise UsedAfterFork(f"{self.target} was opened by process {self._pid}")
        if self._closed.is_set():
            raise StoreUnavailable(f"{self.target} is closed", hint="Open the store again.")

    def _next_name(self) -> str:
        return f"{self._name}.{next(self._numbers)}"

    def _failed(self, error: Exception | None) -> None:
        self._failure = error


def _timeout(seconds: float, *, least: int) -> str:
    """A timeout in the server's notation. 0 would mean no limit, and the server cannot count further than `LONGEST`."""
    return f"{min(max(round(seconds * 1000), least), LONGEST)}ms"
