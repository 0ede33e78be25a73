"""Creates a database: built aside, then published under its name, so that no crash leaves a half-made file there."""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import apsw

from backstay.errors import StoreUnavailable
from backstay.store.sqlite.connection import open_writer
from backstay.store.sqlite.faults import store_errors
from backstay.store.sqlite.files.file_locks import WriteLock, locks_of
from backstay.store.sqlite.files.file_system import cannot_be_created, holds_nothing, make_directory, sync_directory
from backstay.store.sqlite.migrations import SqliteMigration, migrate

# A database is built under this name in the folder of its locks. The holder of the write lock may remove it.
UNFINISHED = "new"
_BESIDE = ("-journal", "-wal", "-shm")
# The errors of a file system without hard links.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


def create(path: Path, steps: Sequence[SqliteMigration], *, wait_seconds: float, vfs: str | None) -> None:
    """Create the database if there is none, or only an empty file. Several processes may do this at once."""
    if not holds_nothing(path):
        return
    make_directory(path)
    lock = WriteLock(locks_of(path) / "write")
    try:
        with lock.within(wait_seconds):
            if holds_nothing(path):
                _create(path, locks_of(path) / UNFINISHED, steps, vfs)
    finally:
        lock.close()


def discard_unfinished(locks: Path) -> None:
    """Remove the files of a process that died while it created the database. The caller holds the write lock."""
    for ending in ("", *_BESIDE):
        with suppress(OSError):
            (locks / f"{UNFINISHED}{ending}").unlink(missing_ok=True)


def _create(path: Path, unfinished: Path, steps: Sequence[SqliteMigration], vfs: str | None) -> None:
    discard_unfinished(unfinished.parent)
    try:
        with store_errors(str(path)):
            _build(unfinished, steps, vfs)
        _clear(path)
        _publish(unfinished, path)
        sync_directory(path.parent)
    except OSError as error:
        raise cannot_be_created(path, error) from error
    finally:
        discard_unfinished(unfinished.parent)


def _build(unfinished: Path, steps: Sequence[SqliteMigration], vfs: str | None) -> None:
    """Build the database without a journal: if this is interrupted, it starts again from the beginning."""
    os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = open_writer(unfinished, vfs)
    try:
        connection.execute("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF").fetchall()
        migrate(connection, unfinished, steps)
        # The last change is synced, and with it all earlier ones.
        connection.execute("PRAGMA synchronous = FULL").fetchall()
        set_wal_mode(connection, unfinished)
    finally:
        connection.close()


def set_wal_mode(connection: apsw.Connection, path: Path) -> None:
    """Switch the database to a write-ahead log."""
    if connection.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
        raise StoreUnavailable(f"{path} does not support a write-ahead log", hint="Use a local disk.")


def _clear(path: Path) -> None:
    """Remove an empty file, and logs of a deleted database: SQLite would replay them into the new one."""
    stale = [file for file in (path, *(Path(f"{path}{ending}") for ending in _BESIDE)) if file.exists()]
    for file in stale:
        file.unlink(missing_ok=True)
    if stale:
        sync_directory(path.parent)


def _publish(unfinished: Path, path: Path) -> None:
    """Give the database its name, unless another program has taken the name meanwhile."""
    try:
        path.hardlink_to(unfinished)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        unfinished.rename(path)
