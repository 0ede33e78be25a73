"""One database file in this process: its writer, its readers, and its locks.

All stores that a process opens on a file share one of these: two would not exclude each other by file locks.
"""

import os
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

import apsw

from backstay.errors import StoreUnavailable, UsedAfterFork
from backstay.model.ids import WorkerId
from backstay.store.engine import WouldBlock
from backstay.store.sqlite.connection import (
    close_quietly,
    closed_on_error,
    on_one_snapshot,
    open_reader,
    open_writer,
    refuse_old_sqlite,
)
from backstay.store.sqlite.faults import breaks_connection, not_a_store, store_errors, translated
from backstay.store.sqlite.files.creation import create, discard_unfinished, set_wal_mode
from backstay.store.sqlite.files.descriptors import retry_while_scarce
from backstay.store.sqlite.files.file_locks import LifeLock, LockState, WriteLock, lock_state, locks_of, sweep
from backstay.store.sqlite.files.file_system import (
    MOUNTS,
    FileIdentity,
    identity,
    refuse_network,
)
from backstay.store.sqlite.files.open_files import OpenFiles, refuse_lost_log
from backstay.store.sqlite.files.read_pause import ReadPause
from backstay.store.sqlite.hints import SocketHints
from backstay.store.sqlite.job import SqliteJob
from backstay.store.sqlite.migrations import SqliteMigration, migrate, refuse_foreign, refuse_foreign_file, shipped
from backstay.store.sqlite.short_reader import ShortReader, data_version
from backstay.store.sqlite.writer import Writer

T = TypeVar("T")


class SqliteDatabase:
    """A file that is open in this process. Writes go through its one writer; reads use connections of their own."""

    def __init__(
        self,
        path: Path,
        file: FileIdentity,
        *,
        name: str,
        vfs: str | None,
        steps: Sequence[SqliteMigration],
        wait_seconds: float,
    ) -> None:
        self.path, self.file = path, file
        self.users = 0
        self.forked = False
        self._vfs = vfs
        self._wait_seconds = wait_seconds
        with store_errors(str(path)):
            refuse_foreign_file(path, steps)
        self._locks = locks_of(path)
        self._life_locks: dict[WorkerId, LifeLock] = {}
        self.hints = SocketHints(self._locks, name)
        """Notifies other processes of commits here, and receives their hints."""
        # Idle connections, as many as threads have ever read at once; last in, first out.
        self._readers: list[apsw.Connection] = []
        self._short_reader: ShortReader | None = None
        self._wants_short_reader = False
        self._watcher: apsw.Connection | None = None
        self._watching = threading.Lock()
        self._closed = False
        with ExitStack() as opened:
            self._write_lock = WriteLock(self._locks / "write")
            opened.callback(self._write_lock.close)
            self._pause = ReadPause(self._locks / "pause")
            opened.callback(self._pause.close)
            self.writer = self._begin_writing(name, *self._prepare(steps))
            opened.pop_all()

    def write(self, work: Callable[[apsw.Connection], T], *, seconds: float, durable: bool, exclusive: bool) -> T:
        """Run the work in a write transaction; returns once it is committed, or raises and has changed nothing."""
        job = SqliteJob(work, durable=durable, exclusive=exclusive)
        self._refuse_fork()
        if self.writer.at_once(job):  # type: ignore[arg-type]  # the writer never looks at a job's value
            return job.result()
        self.writer.submit(job)  # type: ignore[arg-type]
        if not job.wait(seconds):
            raise self.too_busy(seconds)
        return job.result()

    def too_busy(self, seconds: float) -> StoreUnavailable:
        """The error for a job that could not begin in time."""
        return StoreUnavailable(
            f"{self.path} could not be written within {seconds:g} s: {self._write_lock.holder()} is writing it",
            hint="Nothing was changed. Try again, or check what that process is doing.",
        )

    def read(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run the work on one snapshot."""
        return self.peek(lambda connection: on_one_snapshot(connection, work))

    def read_now(self, work: Callable[[apsw.Connection], T], *, snapshot: bool) -> T:
        """Run a short read on the caller's thread.

        Raises:
            WouldBlock: the read would take long, or wait.
        """
        self._refuse_fork()
        reader = self._short_reader
        if reader is None or not reader.usable:
            # The connection of the next read on another thread becomes the short reader: opening one takes long.
            self._short_reader, self._wants_short_reader = None, True
            raise WouldBlock
        if self._pause.lasts():
            raise WouldBlock
        self._files.refuse_replaced_lately()
        return reader.read(work, snapshot=snapshot)

    def peek(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run work that is a single statement and needs no snapshot."""
        self._refuse_fork()
        connection = self._borrow_reader()
        try:
            result = work(connection)
        except apsw.Error as error:
            if breaks_connection(error):
                close_quietly(connection)
            else:
                self._give_back(connection)
            raise translated(error, str(self.path)) from error
        except BaseException:
            self._give_back(connection)
            raise
        self._give_back(connection)
        return result

    def version(self) -> int:
        """A number that changes whenever any process has committed.

        It is always read on the same connection: the number is what this connection has noticed, and cannot be compared
        with that of another.
        """
        self._refuse_fork()
        with self._watching, store_errors(str(self.path)):
            if self._closed:
                raise StoreUnavailable(f"{self.path} is closed", hint="Open the store again.")
            self._files.refuse_replaced_lately()
            if self._watcher is None:
                self._watcher = self._open_reader()
            return data_version(self._watcher)

    def version_now(self) -> int:
        """The same, if it is known without waiting.

        Raises:
            WouldBlock: the first version opens a connection, or another thread is reading the version.
        """
        if self._watcher is None or self._watching.locked():
            raise WouldBlock
        return self.version()

    def refuse_replaced(self) -> None:
        """Raise if a file of the database was removed or replaced since it was opened in this process."""
        self._files.refuse_replaced()

    def register_worker(self, worker: WorkerId) -> None:
        """Take the worker's life lock, so that other processes can see that it is alive."""
        self._refuse_fork()
        if worker not in self._life_locks:
            self._life_locks[worker] = LifeLock(self._locks / worker)

    def unregister_worker(self, worker: WorkerId, *, forgotten: bool) -> None:
        """Release the worker's life lock, if it has one.

        The lock file stays as long as the worker's row: a process that finds a row without a lock file cannot know that
        the worker is dead.
        """
        lock = self._life_locks.pop(worker, None)
        if lock is not None and not self.forked:
            lock.release(remove=forgotten)

    def sweep(self, keep: Collection[WorkerId]) -> None:
        """Remove the life locks of dead workers except these, and dead sockets. Their names are never used again."""
        sweep(self._locks, keep=keep)
        self.hints.sweep()

    def lock_state(self, worker: WorkerId) -> LockState:
        """Whether the worker's process still holds its life lock."""
        return lock_state(self._locks / worker)

    def close(self) -> None:
        """Finish the queued jobs and close every connection; a connection in use is closed by its reader."""
        with self._watching:  # From here on no connection becomes the short reader.
            self._closed = True
        self._close_readers()
        if self._short_reader is not None:
            self._short_reader.close()
        with self._watching:  # The thread of a cancelled caller may still be reading the version.
            if self._watcher is not None:
                close_quietly(self._watcher)
        self.writer.close(self._wait_seconds)

    def forget(self) -> None:
        """In a forked child: never touch the parent's connections, and do not keep its locks alive."""
        self.forked = self.writer.forked = True
        self._write_lock.close()
        self._pause.close()
        self._files.end_use()
        self.hints.forget()
        for lock in self._life_locks.values():
            lock.forget()

    def _prepare(self, steps: Sequence[SqliteMigration]) -> tuple[apsw.Connection, apsw.Connection]:
        """Open and migrate the file under the lock: ten processes may do this at once on an old file.

        Returns the writer's connection and its anchor.
        """
        with self._write_lock.within(self._wait_seconds), store_errors(str(self.path)):
            discard_unfinished(self._locks)
            refuse_lost_log(self.path, self._write_lock)
            connection = open_writer(self.path, self._vfs)
            with closed_on_error(connection):
                refuse_foreign(connection, str(self.path), steps)
                set_wal_mode(connection, self.path)
                migrate(connection, self.path, steps)
                anchor = self._open_anchor(connection)
                with closed_on_error(anchor):
                    # Under the lock: this records the log for the other processes.
                    self._files = OpenFiles(self.path, self.file, self._write_lock)
        return connection, anchor

    def _begin_writing(self, name: str, connection: apsw.Connection, anchor: apsw.Connection) -> Writer:
        try:
            return Writer(
                self.path,
                self._write_lock,
                self._files,
                self._pause,
                self.hints,
                name=name,
                vfs=self._vfs,
                connection=connection,
                anchor=anchor,
            )
        except BaseException:
            self._files.end_use()
            self._files.close()
            close_quietly(anchor)
            close_quietly(connection)
            raise

    def _open_anchor(self, connection: apsw.Connection) -> apsw.Connection:
        """A connection that never writes and keeps the log and its index in place as long as the file is open here.

        All connections of a process share the index. If the first of them could only read it, none could write. So the
        writer begins a transaction before the anchor is kept.
        """
        anchor = open_reader(self.path, self._vfs)
        with closed_on_error(anchor):
            anchor.execute("SELECT 1 FROM sqlite_schema").fetchall()
            connection.execute("BEGIN IMMEDIATE; ROLLBACK")
        return anchor

    def _borrow_reader(self) -> apsw.Connection:
        self._pause.wait()
        self._files.refuse_replaced_lately()
        try:
            return self._readers.pop()
        except IndexError:
            pass  # All are in use by other threads.
        with store_errors(str(self.path)):
            return self._open_reader()

    def _open_reader(self) -> apsw.Connection:
        """A connection to the same files as the others. Its first statement opens the log."""
        try:
            connection = open_reader(self.path, self._vfs)
        except apsw.CantOpenError:
            self._files.refuse_replaced()  # SQLite would only report that the file does not exist.
            raise
        with closed_on_error(connection):
            connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
            self._files.refuse_replaced()
        return connection

    def _give_back(self, connection: apsw.Connection) -> None:
        if self._wants_short_reader and self._keep_as_short_reader(connection):
            return
        self._readers.append(connection)
        if self._closed:  # Checked after it was returned: `close` either found it in the list, or is noticed here.
            self._close_readers()

    def _keep_as_short_reader(self, connection: apsw.Connection) -> bool:
        with self._watching:
            if self._closed or not self._wants_short_reader:
                return False
            self._short_reader, self._wants_short_reader = ShortReader(connection, str(self.path)), False
            return True

    def _close_readers(self) -> None:
        with suppress(IndexError):  # Two threads may do this at once.
            while True:
                close_quietly(self._readers.pop())

    def _refuse_fork(self) -> None:
        if self.forked:
            raise UsedAfterFork(f"{self.path} was opened by the parent of this process")


_shared: dict[FileIdentity, SqliteDatabase] = {}
_guard = threading.Lock()


def open_database(
    path: Path,
    *,
    name: str,
    wait_seconds: float,
    vfs: str | None = None,
    steps: Sequence[SqliteMigration] | None = None,
    mounts: Path = MOUNTS,
) -> SqliteDatabase:
    """This process's one handle on the file; the first one creates, migrates and checks it."""
    refuse_old_sqlite()

    def open_it() -> SqliteDatabase:
        known = steps or shipped()
        try:
            return _open(path.resolve(), known, name=name, wait_seconds=wait_seconds, vfs=vfs, mounts=mounts)
        except OSError as error:
            raise StoreUnavailable(
                f"{path} cannot be accessed: {error.strerror}", hint="Check the directory."
            ) from error

    return retry_while_scarce(open_it, seconds=wait_seconds, location=str(path))


def _open(
    path: Path, steps: Sequence[SqliteMigration], *, name: str, wait_seconds: float, vfs: str | None, mounts: Path
) -> SqliteDatabase:
    refuse_network(path, mounts)
    create(path, steps, wait_seconds=wait_seconds, vfs=vfs)
    if path.exists() and not path.is_file():
        raise not_a_store(str(path), "it is a directory" if path.is_dir() else "it is not a regular file")
    with _guard:
        file = identity(path)
        if file is None:
            raise StoreUnavailable(f"{path} vanished while it was being opened")
        if file in _inherited:
            raise UsedAfterFork(f"{path} was open in the parent when this process was forked")
        database = _shared.get(file)
        if database is None:
            database = _shared[file] = SqliteDatabase(
                path, file, name=name, vfs=vfs, steps=steps, wait_seconds=wait_seconds
            )
        else:
            database.refuse_replaced()
        database.users += 1
        return database


def close_database(database: SqliteDatabase) -> None:
    """Release the handle; the last one closes the file."""
    with _guard:
        database.users -= 1
        if database.users == 0 and not database.forked:
            _shared.pop(database.file, None)
            database.close()


# A child must not close connections that it inherited: closing may checkpoint the parent's log. They are kept here so
# that the garbage collector does not close them. The child cannot open the file again either: its copy of SQLite
# believes that this process still has the parent's locks.
_inherited: dict[FileIdentity, SqliteDatabase] = {}


def _forget_in_child() -> None:
    global _guard  # noqa: PLW0603  # another thread may have held it at the fork and will never release it here
    _guard = threading.Lock()
    for database in _shared.values():
        database.forget()
    _inherited.update(_shared)
    _shared.clear()


os.register_at_fork(after_in_child=_forget_in_child)
