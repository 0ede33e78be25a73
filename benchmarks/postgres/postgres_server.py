"""A PostgreSQL server for benchmarks, its costs, and databases to be copied."""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql

from backstay import open_store
from backstay.clock import SystemClock
from backstay.model.ids import IdSource, SessionId
from benchmarks.instruments.sample_turns import MESSAGES, OWNER
from tests.postgres_servers.postgres import Home, Postgres

_SETTINGS = {
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
    # Both would run at an arbitrary moment, and disturb one of the compared runs.
    "autovacuum": "off",
    "bgwriter_lru_maxpages": "0",
}
_RATE = re.compile(r"tps = ([\d.]+)")
_TABLES = ("sessions", "windows", "events")


class BenchmarkServer:
    """A server of this benchmark."""

    def __init__(self, server: Postgres) -> None:
        self._server = server

    def database(self, template: str = "template1") -> str:
        """The name of a new database."""
        return self._server.database(template)

    def url(self, database: str) -> str:
        return self._server.url(database)

    def wal(self) -> int:
        """The bytes of the write-ahead log so far."""
        return int(self._server.query("SELECT pg_current_wal_insert_lsn() - '0/0'")[0][0])

    def checkpoint(self) -> None:
        """Checkpoint: the next change of each page writes the whole page into the log."""
        self._server.query("CHECKPOINT")

    def size(self, database: str) -> int:
        """How many bytes a database takes on the disk."""
        return int(self._server.query("SELECT pg_database_size(%s)", database)[0][0])

    def seconds(self) -> float:
        """The processor time of the server and all its processes so far."""
        ticks = sum(_ticks(pid, own=pid == self._server.pid) for pid in self._processes())
        return ticks / os.sysconf("SC_CLK_TCK")

    def pgbench(self, database: str, clients: int, seconds: int) -> float:
        """Transactions per second of its simple update."""
        how = f"-N -n -c {clients} -j 2 -T {seconds}".split()
        said = self._run("pgbench", *how, self.url(database))
        rate = _RATE.search(said)
        # On a busy machine, no transaction may have ended in that time.
        return float(rate[1]) if rate else self.pgbench(database, clients, seconds * 2)

    def prepare_pgbench(self) -> str:
        """A database for pgbench."""
        name = self.database()
        self._run("pgbench", "-i", "-q", "-s", "10", self.url(name))
        return name

    def _run(self, program: str, *arguments: str) -> str:
        home = self._server.home
        command = [home.installation.program(program), *arguments]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True, **home.account.drop())
        return done.stdout

    def _processes(self) -> list[int]:
        root = self._server.pid
        found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [pid for pid in found if pid == root or _parent(pid) == root]


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return []  # It has just ended; its ticks count for its parent.


def _parent(pid: int) -> int:
    stat = _stat(pid)
    return int(stat[1]) if stat else 0


def _ticks(pid: int, *, own: bool) -> int:
    stat = _stat(pid)
    return sum(map(int, stat[11 : 15 if own else 13]))


@contextmanager
def postgres_server() -> Iterator[BenchmarkServer]:
    """A server with its files in memory if there is folder; removed afterwards."""
    home = Home()
    try:
        with Postgres(home, settings=_SETTINGS) as server:
            yield BenchmarkServer(server)
    finally:
        home.close()


def fill_with_messages(url: str, messages: int) -> SessionId:
    """Create a session with this number of messages."""
    with open_store(url) as store:
        session = store.create(owner=OWNER).id
        for low in range(0, messages, 500):
            store.record(session, (MESSAGES * 250)[: min(500, messages - low)], owner=OWNER)
    return session


def fill_with_sessions(url: str, sessions: int) -> list[SessionId]:
    """Create empty sessions, copied from one that the store made."""
    with open_store(url) as store:
        first = store.create(owner=OWNER)
    ids = IdSource(SystemClock())
    named = [(ids.session(), ids.window()) for _ in range(sessions - 1)]
    with psycopg.connect(url) as connection:
        for table in _TABLES:
            _multiply(connection, table, first.id, first.window, named)
        connection.execute(sql.SQL("ANALYZE"))
    return [first.id, *(session for session, _ in named)]


def _multiply(
    connection: psycopg.Connection[tuple[object, ...]],
    table: str,
    session: str,
    window: str,
    named: Sequence[tuple[str, str]],
) -> None:
    """Copy the rows of one session in one table under other ids, with new keys."""
    cursor = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table)))
    columns = [column.name for column in cursor.description or () if column.name != "key"]
    rows = [dict(zip([column.name for column in cursor.description or ()], row, strict=True)) for row in cursor]
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    copying = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), names)
    with connection.cursor() as writer, writer.copy(copying) as copy:
        for other, opened in named:
            for row in rows:
                copy.write_row([_renamed(row[name], {session: other, window: opened}) for name in columns])


def _renamed(value: object, names: dict[str, str]) -> object:
    if not isinstance(value, str):
        return value
    for old, new in names.items():
        value = value.replace(old, new)
    return value
