"""A real PostgreSQL server for tests, on a free local port, removed with the test run.

Its data is in memory where the system has room: `fsync` stays on, as Backstay requires, and costs nothing.
"""

import contextlib
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, LiteralString, Self
from urllib.parse import urlencode

import psycopg
from psycopg import sql

from tests.memory_folder import memory_folder
from tests.postgres_servers.daemon import PATIENCE, Daemon, ServerFailed
from tests.postgres_servers.installation import Installation, installation
from tests.postgres_servers.unprivileged_account import account

USER = "backstay"
HOST = "127.0.0.1"
SERVES = "ready to accept"
FOLDER_REMOVER = Path(__file__).with_name("folder_remover.py")
# Below the ephemeral ports of Linux and macOS.
PORTS = range(20_000, 32_000)

# The settings of every server; none of them weakens a guarantee.
SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "300",
    "shared_buffers": "64MB",
    "lc_messages": "C",
    "logging_collector": "off",
    "log_line_prefix": "%m [%p] %d ",
    "jit": "off",
    # A vacuum is a transaction: once a minute it would change `version()` in the middle of a test.
    "autovacuum": "off",
}

# With these, and its log writer stopped, a server writes its log only for commits that wait for it.
FORGETFUL = {"bgwriter_lru_maxpages": "0", "checkpoint_timeout": "1h"}

Row = tuple[Any, ...]  # Any: whatever the query selects


class Home:
    """A folder that the servers' account can reach, with the empty cluster that every server begins with.

    It is removed when it is closed, and when this process has ended.
    """

    def __init__(self) -> None:
        self.account = account()
        self.path = Path(tempfile.mkdtemp(prefix="backstay-postgres-", dir=_place()))
        self.path.chmod(0o755)
        self._folder_remover = subprocess.Popen(
            [sys.executable, "-I", "-S", str(FOLDER_REMOVER), str(self.path)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self.installation = installation().reachable(self.account, self.path)
        self._numbers = itertools.count(1)

    def folder(self) -> Path:
        """A new folder that only the servers' account enters."""
        folder = self.path / str(next(self._numbers))
        folder.mkdir(mode=0o700)
        self.account.give(folder)
        return folder

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs to its end."""
        self.execute(self.installation.program(program), *arguments)

    def execute(self, *command: str) -> None:
        """Run a program as the servers' account to its end."""
        done = subprocess.run(
            command, cwd="/", capture_output=True, text=True, check=False, timeout=PATIENCE, **self.account.drop()
        )
        if done.returncode:
            raise ServerFailed(f"{command[0]} failed:\n{done.stdout}{done.stderr}")

    @property
    def in_memory(self) -> bool:
        """Whether writing files costs nothing here."""
        return self.path.parent == memory_folder()

    def cluster(self) -> Path:
        """The files of a new server, copied from the first one."""
        template = self.path / "template"
        if not template.exists():
            self._make(template)
        data = self.folder() / "data"
        self.execute("cp", "-R", str(template), str(data))
        return data

    def _make(self, template: Path) -> None:
        template.mkdir(mode=0o700)
        self.account.give(template)
        how = f"--username={USER} --auth=trust --encoding=UTF8 --no-locale --no-sync"
        self.run("initdb", f"--pgdata={template}", *how.split())

    def close(self) -> None:
        """Remove everything; return when that is done."""
        self._folder_remover.communicate(timeout=PATIENCE)


class Postgres:
    """One server. It can be stopped, killed and started again on the same port with the same data."""

    def __init__(
        self, home: Home, *, data: Path | None = None, settings: Mapping[str, str] | None = None, port: int = 0
    ) -> None:
        self.home = home
        self.data = data or home.cluster()
        self.settings = {**SETTINGS, **(settings or {})}
        self.port = port
        self._daemon: Daemon | None = None
        self._names = itertools.count(1)
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def installation(self) -> Installation:
        return self.home.installation

    @property
    def pid(self) -> int:
        """The process that all others of the server come from."""
        return self._running().pid

    # --- start and stop ---------------------------------------------------------------------------------------------

    def start(self, **settings: str) -> None:
        """Start to serve, with these settings from now on; return when it serves."""
        self.settings |= settings
        self.close()
        for _ in range(5):
            try:
                self._daemon = self._begin(self.port or free_port())
            except ServerFailed as error:
                if self.port or "could not bind" not in str(error):
                    raise
            else:
                return
        raise ServerFailed("every free port was taken before the server could have it")

    def _begin(self, port: int) -> Daemon:
        chosen = [word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")]
        daemon = Daemon(
            [self.installation.program("postgres"), "-D", str(self.data), "-p", str(port), *chosen],
            account=self.home.account,
            log=self.data.parent / "server.log",
            ready=SERVES,
        )
        self.port = port
        return daemon

    def stop(self) -> None:
        """Shut down cleanly: clients are disconnected."""
        self._running().end(signal.SIGINT)

    def kill(self) -> None:
        """End it as the kernel does when memory runs out; its other processes notice and end too."""
        self._running().end(signal.SIGKILL)

    @contextmanager
    def losing_unsynced(self) -> Iterator[None]:
        """Inside the block only commits that wait for the disk reach it; then the server is killed.

        For a server with the settings `FORGETFUL`. Every commit that did not wait is lost.
        """
        [(log_writer,)] = self.query("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'")
        os.kill(log_writer, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGKILL)
            os.kill(log_writer, signal.SIGKILL)
            self.kill()

    def pause(self) -> None:
        """Stop the process that accepts connections where it stands."""
        self._running().send(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run again."""
        self._running().send(signal.SIGCONT)

    def restart(self, **settings: str) -> None:
        """Stop and start, with these settings from now on."""
        self.stop()
        self.start(**settings)

    def close(self) -> None:
        """Stop immediately, without regard to connections."""
        if self._daemon is not None:
            self._daemon.close()
            self._daemon = None

    def log(self) -> str:
        """The end of its log."""
        return self._running().tail()

    def _running(self) -> Daemon:
        assert self._daemon is not None, "it was started"
        return self._daemon

    # --- its databases ----------------------------------------------------------------------------------------------

    def url(self, database: str = "postgres", **parameters: str) -> str:
        """The URL of a database of the server."""
        return at(self.port, database, **parameters)

    def database(self, template: str = "template1") -> str:
        """The name of a fresh database."""
        name = f"test_{next(self._names)}"
        strategy: LiteralString = "FILE_COPY" if self.home.in_memory else "WAL_LOG"
        self._execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY {}").format(
                sql.Identifier(name), sql.Identifier(template), sql.SQL(strategy)
            )
        )
        return name

    def template(self, name: str, prepare: Callable[[str], None]) -> str:
        """The name of a database that is prepared once, to copy fresh ones from."""
        if not self.query("SELECT 1 FROM pg_database WHERE datname = %s", name):
            self._execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            prepare(self.url(name))
        return name

    def drop(self, database: str) -> None:
        """Remove a database and close its connections."""
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database)))

    def query(self, query: LiteralString, *parameters: object, database: str = "postgres") -> list[Row]:
        """Query the server directly, without the code under test."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(query, parameters)
            return cursor.fetchall() if cursor.description is not None else []

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)


def at(port: int, database: str, **parameters: str) -> str:
    """The URL of a database on this machine."""
    query = f"?{urlencode(parameters)}" if parameters else ""
    return f"postgresql://{USER}@{HOST}:{port}/{database}{query}"


def free_port() -> int:
    """A port without a listener, outside the ephemeral range.

    So a server that was stopped finds its port free when it comes back, however many connections were made meanwhile.
    """
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port


def _place() -> Path | str | None:
    """In memory if there is room; else where temporary files go, unless only root can enter there."""
    return memory_folder() or ("/tmp" if os.geteuid() == 0 else None)
