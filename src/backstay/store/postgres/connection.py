"""One connection to the server, with its settings."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import psycopg
from psycopg import pq
from psycopg.rows import TupleRow

from backstay.errors import ConfigError
from backstay.store.postgres.protocol.prepared import PreparedStatements
from backstay.store.postgres.protocol.values import Converter, register_widths

OLDEST_SERVER = 140_000

_CHECK = """
SELECT CAST(current_setting('server_version_num') AS int), current_setting('fsync'), pg_backend_pid(),
    current_setting('synchronous_commit'), current_setting('server_encoding')
"""
# The server detects a dead host within half a minute. Its other timeouts do not run while it waits for the rest of
# several statements that were sent together.
_KEEPALIVES = (b"SET tcp_keepalives_idle = 10", b"SET tcp_keepalives_interval = 5", b"SET tcp_keepalives_count = 3")


class TimedCursor(psycopg.Cursor[TupleRow]):
    """A cursor that records since when an answer is awaited."""

    def execute(self, *arguments: Any, **options: Any) -> Self:  # Any: the driver's own
        connection = self.connection
        if not isinstance(connection, ServerConnection):
            return super().execute(*arguments, **options)
        connection.busy = time.monotonic()
        try:
            return super().execute(*arguments, **options)
        finally:
            connection.busy = 0.0


class ServerConnection(psycopg.Connection[TupleRow]):
    """A connection whose server was checked: it can be trusted with durable data.

    `writer` and `number` identify its transactions; `committed` is the number of the last one that changed something,
    None before the first. `busy` is the time since which it waits for an answer.
    """

    writer: str
    number: int
    committed: int | None
    busy: float
    version: int
    direct: bool
    prepared: PreparedStatements
    converter: Converter
    timeouts: tuple[bytes, ...]
    opening: tuple[bytes, ...]
    light_opening: tuple[bytes, ...]

    @classmethod
    def connect(  # type: ignore[override]  # the pool passes our arguments on
        cls,
        conninfo: str = "",
        *,
        name: Callable[[], str],
        settings: Mapping[str, str],
        failed: Callable[[Exception | None], None],
        **options: Any,  # Any: the driver's own
    ) -> Self:
        """Connect and check the server; a failure is reported to the callers that wait for the pool."""
        try:
            connection = super().connect(conninfo, autocommit=True, **options)
            connection.writer, connection.number, connection.committed, connection.busy = name(), 0, None, 0.0
            connection.prepared, connection.converter = PreparedStatements(), Converter()
            connection.check(settings)
        except (psycopg.Error, ConfigError) as error:
            failed(error)
            raise
        failed(None)
        return connection

    def check(self, settings: Mapping[str, str]) -> None:
        """Check the server, and choose the settings of the connection."""
        register_widths(self.adapters)
        self.cursor_factory = TimedCursor
        row = self.execute(_CHECK).fetchone()
        if row is None:
            raise psycopg.OperationalError("the server sent no answer")
        self.version, fsync, process, commits, encoding = row
        self._refuse_unfit(fsync, encoding)
        self._set_openings(settings, commits, pooled=process != self.info.backend_pid)

    def _set_openings(self, settings: Mapping[str, str], commits: str, *, pooled: bool) -> None:
        """Set the statements with which every transaction begins."""
        timeouts = tuple(f"SET LOCAL {name} = '{value}'".encode() for name, value in settings.items())
        self.direct = self.prepared.kept = not pooled
        if pooled:
            # The next transaction may run in another server process, which has no statement or setting of ours.
            self.prepare_threshold = None
        else:
            self.execute(b"; ".join((*timeouts, *_KEEPALIVES)).replace(b"SET LOCAL", b"SET"))
            timeouts = ()
        self.timeouts = timeouts
        begin = (b"BEGIN ISOLATION LEVEL READ COMMITTED", *timeouts)
        # A durable commit waits for the disk, and for a standby if the server is configured so.
        at_least = (b"SET LOCAL synchronous_commit = on",) if commits in ("off", "local") else ()
        self.opening = (*begin, *at_least)
        self.light_opening = (*begin, b"SET LOCAL synchronous_commit = off")

    def _refuse_unfit(self, fsync: str, encoding: str) -> None:
        if fsync != "on":
            self.close()
            raise ConfigError(
                "the PostgreSQL server runs with fsync=off and could lose acknowledged writes",
                hint="Set fsync = on in postgresql.conf.",
            )
        if self.version < OLDEST_SERVER:
            self.close()
            raise ConfigError(f"PostgreSQL {self.version // 10_000} is too old", hint="Backstay needs 14 or newer.")
        if encoding != "UTF8":
            self.close()
            raise ConfigError(
                f"the encoding of the PostgreSQL database is {encoding}, which cannot store every text",
                hint="Create another with CREATE DATABASE … TEMPLATE template0 ENCODING 'UTF8'.",
            )

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, valid or failed."""
        return self.info.transaction_status != pq.TransactionStatus.IDLE

    def roll_back(self) -> None:
        """Undo the transaction, if there is one. A connection that cannot is closed, and the server then undoes it."""
        if self.closed or not self.in_transaction:
            return
        self.busy = time.monotonic()
        try:
            # Bypass the driver, which would discard every prepared statement at a ROLLBACK.
            if self.pgconn.exec_(b"ROLLBACK").status != pq.ExecStatus.COMMAND_OK:
                self.close()
        except psycopg.Error:
            self.close()
        finally:
            self.busy = 0.0

    def close_socket(self) -> None:
        """Shut the socket down from another thread, so that the thread that waits for an answer gets an error."""
        try:
            with socket.socket(fileno=socket.dup(self.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)
        except (OSError, psycopg.Error):
            pass  # The connection is closed already.


class Watchdog:
    """Closes connections whose server does not answer: the network may lose a query, and the system waits for hours."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._connections: set[ServerConnection] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, connection: ServerConnection) -> Iterator[None]:
        """Inside the block no query on this connection is awaited much longer than this many seconds."""
        with self._lock:
            self._connections.add(connection)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="backstay-watchdog", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._connections.discard(connection)

    @property
    def watched(self) -> int:
        """The number of connections in use."""
        return len(self._connections)

    def close(self) -> None:
        """Stop the watchdog."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(min(1.0, self._seconds / 4)):
            now = time.monotonic()
            with self._lock:
                late = [
                    connection
                    for connection in self._connections
                    if connection.busy and now - connection.busy >= self._seconds
                ]
            for connection in late:
                connection.close_socket()
