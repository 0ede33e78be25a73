"""One connection to the server, with what Backstay must know of it."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import psycopg
from psycopg import pq
from psycopg.rows import TupleRow
from psycopg.types.numeric import Int8Dumper

from backstay.errors import ConfigError

OLDEST_SERVER = 140_000

_LOOK = """
SELECT CAST(current_setting('server_version_num') AS int), current_setting('fsync'), pg_backend_pid(),
    current_setting('synchronous_commit'), current_setting('server_encoding')
"""


class TimedCursor(psycopg.Cursor[TupleRow]):
    """A cursor that says since when an answer has been waited for."""

    def execute(self, *arguments: Any, **options: Any) -> Self:  # Any: the driver's own
        wire = self.connection
        if not isinstance(wire, Wire):
            return super().execute(*arguments, **options)
        wire.busy = time.monotonic()
        try:
            return super().execute(*arguments, **options)
        finally:
            wire.busy = 0.0


class Wire(psycopg.Connection[TupleRow]):
    """A connection that was looked at: it may be trusted with what must not be lost.

    `writer` and `number` name its transactions. `busy` is since when it has been waiting for an answer.
    """

    writer: str
    number: int
    busy: float
    version: int
    keeps_statements: bool
    prepared: bool
    timeouts: str
    opening: str
    light_opening: str

    @classmethod
    def connect(  # type: ignore[override]  # the pool hands on what it was given for us
        cls,
        conninfo: str = "",
        *,
        name: Callable[[], str],
        settings: Mapping[str, str],
        failed: Callable[[Exception | None], None],
        **options: Any,  # Any: the driver's own
    ) -> Self:
        """Connect and look; a failure is told to whoever waits for the pool."""
        try:
            wire = super().connect(conninfo, autocommit=True, **options)
            wire.writer, wire.number, wire.busy, wire.prepared = name(), 0, 0.0, False
            wire.look(settings)
        except (psycopg.Error, ConfigError) as error:
            failed(error)
            raise
        failed(None)
        return wire

    def look(self, settings: Mapping[str, str]) -> None:
        """See what stands at the other end, and settle how to talk to it."""
        # All our columns are of one width, and a statement is prepared once for each kind of parameters.
        self.adapters.register_dumper(int, Int8Dumper)
        self.adapters.register_dumper(bool, Int8Dumper)
        self.cursor_factory = TimedCursor
        row = self.execute(_LOOK).fetchone()
        if row is None:
            raise psycopg.OperationalError("the server does not answer")
        self.version, fsync, process, commits, encoding = row
        self._refuse_unfit(fsync, encoding)
        self._agree(settings, commits, pooled=process != self.info.backend_pid)

    def _agree(self, settings: Mapping[str, str], commits: str, *, pooled: bool) -> None:
        """Settle what every transaction begins with."""
        timeouts = "".join(f"SET LOCAL {name} = '{value}'; " for name, value in settings.items())
        self.keeps_statements = not pooled
        if pooled:
            # The next transaction may run in another process, which knows no statement or setting of ours.
            self.prepare_threshold = None
        else:
            self.prepared_max = 500
            self.execute(timeouts.replace("SET LOCAL", "SET").encode())
            timeouts = ""
        self.timeouts = timeouts
        # What is durable waits for the disk, and for a standby if that is how the server is set.
        at_least = "SET LOCAL synchronous_commit = on; " if commits in ("off", "local") else ""
        self.opening = f"BEGIN ISOLATION LEVEL READ COMMITTED; {timeouts}{at_least}"
        self.light_opening = f"BEGIN ISOLATION LEVEL READ COMMITTED; {timeouts}SET LOCAL synchronous_commit = off; "

    def _refuse_unfit(self, fsync: str, encoding: str) -> None:
        if fsync != "on":
            self.close()
            raise ConfigError(
                "the PostgreSQL server runs with fsync=off and would lose what it promised",
                hint="Set fsync = on in postgresql.conf.",
            )
        if self.version < OLDEST_SERVER:
            self.close()
            raise ConfigError(f"PostgreSQL {self.version // 10_000} is too old", hint="Backstay needs 14 or newer.")
        if encoding != "UTF8":
            self.close()
            raise ConfigError(
                f"the encoding of the PostgreSQL database is {encoding}, which cannot hold every text",
                hint="Make another with CREATE DATABASE … TEMPLATE template0 ENCODING 'UTF8'.",
            )

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, sound or failed."""
        return self.info.transaction_status != pq.TransactionStatus.IDLE

    def roll_back(self) -> None:
        """Undo the transaction, if there is one. A connection that cannot is closed: the server ends it then."""
        if self.closed or not self.in_transaction:
            return
        self.busy = time.monotonic()
        try:
            # Past the driver, which would throw away every prepared statement at this word.
            if self.pgconn.exec_(b"ROLLBACK").status != pq.ExecStatus.COMMAND_OK:
                self.close()
        except psycopg.Error:
            self.close()
        finally:
            self.busy = 0.0

    def hang_up(self) -> None:
        """Cut the line from another thread, so that whoever waits for an answer gets an error instead."""
        try:
            with socket.socket(fileno=socket.dup(self.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)
        except (OSError, psycopg.Error):
            pass  # It is closed already.


class Watchdog:
    """Hangs up on servers that do not answer: the network may swallow a question, and the system waits for hours."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._wires: set[Wire] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, wire: Wire) -> Iterator[None]:
        """Inside the block no question on this connection is waited for much longer than so many seconds."""
        with self._lock:
            self._wires.add(wire)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="backstay-watchdog", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._wires.discard(wire)

    @property
    def watched(self) -> int:
        """How many connections are in use."""
        return len(self._wires)

    def close(self) -> None:
        """Watch no more."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(min(1.0, self._seconds / 4)):
            now = time.monotonic()
            with self._lock:
                late = [wire for wire in self._wires if wire.busy and now - wire.busy >= self._seconds]
            for wire in late:
                wire.hang_up()
