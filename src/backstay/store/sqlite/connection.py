"""Connections to one database file, always with the same settings."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

import apsw

from backstay.errors import StoreError, StoreReadOnly
from backstay.store.sqlite.ranking import add_ranking_functions

T = TypeVar("T")

OLDEST = (3, 51, 3)
APPLICATION_ID = 0x424B5354  # "BKST"
MOVING_ID = 0x424B534D  # "BKSM": a store that has only partly arrived
BUSY_MS = 5_000
Durability = Literal["NORMAL", "FULL"]

_WRITER = """
PRAGMA foreign_keys = ON;
PRAGMA trusted_schema = OFF;
PRAGMA cell_size_check = ON;
PRAGMA secure_delete = ON;
PRAGMA temp_store = MEMORY;
PRAGMA fullfsync = ON;
PRAGMA checkpoint_fullfsync = ON;
PRAGMA wal_autocheckpoint = 0;
PRAGMA journal_size_limit = 16777216;
PRAGMA synchronous = FULL;
"""
_READER = """
PRAGMA query_only = ON;
PRAGMA trusted_schema = OFF;
PRAGMA cell_size_check = ON;
PRAGMA temp_store = MEMORY;
"""


def refuse_old_sqlite(version: str = apsw.sqlite_lib_version()) -> None:
    """Raise below SQLite 3.51.3: older ones can corrupt a WAL database when two connections write and checkpoint."""
    if tuple(int(part) for part in version.split(".")) < OLDEST:
        raise StoreError(
            f"SQLite {version} can corrupt the database under concurrent writers",
            hint="Install a newer apsw: pip install --upgrade apsw",
        )


def open_writer(path: Path, vfs: str | None = None) -> apsw.Connection:
    """The one connection of this process that writes. Its owner runs the checkpoints."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
    with closed_on_error(connection):
        # SQLite opens a file without write permission for reading, and such a connection would stay read-only forever.
        if connection.readonly("main"):
            raise StoreReadOnly(f"{path} cannot be written: it could only be opened for reading")
        _settle_plans(connection)
        connection.set_busy_timeout(BUSY_MS)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
        connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
        # Fetch the rows: a statement that returns a row would otherwise stop the ones after it.
        connection.execute(_WRITER).fetchall()
    return connection


def open_reader(path: Path, vfs: str | None = None) -> apsw.Connection:
    """A connection that can only read."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs=vfs)
    with closed_on_error(connection):
        _settle_plans(connection)
        connection.set_busy_timeout(BUSY_MS)
        connection.execute(_READER).fetchall()
        # A file that cannot be read fails here, with its own error. The next line would only report a missing
        # extension.
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
        add_ranking_functions(connection)
    return connection


@contextmanager
def closed_on_error(connection: apsw.Connection) -> Iterator[None]:
    """Close the connection if the block raises. Otherwise its files stay open as long as the error is referenced."""
    try:
        yield
    except BaseException:
        close_quietly(connection)
        raise


def on_one_snapshot(connection: apsw.Connection, work: Callable[[apsw.Connection], T]) -> T:
    """Run work that only reads in a transaction, so that all its statements see the same state."""
    connection.execute("BEGIN")
    try:
        return work(connection)
    finally:
        # An I/O error has already ended the transaction; a second error would hide it.
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def close_quietly(connection: apsw.Connection) -> None:
    """Close a connection on a disk that may fail: the file is in the state of the last commit either way."""
    try:
        connection.close()
    except apsw.Error:
        connection.close(True)


def _settle_plans(connection: apsw.Connection) -> None:
    """Plan each statement once: otherwise SQLite plans many of ours again for every parameter value."""
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def pragma(connection: apsw.Connection, name: str) -> int:
    """The number that a PRAGMA returns."""
    row = connection.execute(f"PRAGMA {name}").fetchone()
    return int(row[0]) if row else 0
