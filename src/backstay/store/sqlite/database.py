"""One database file in this process: its writer, its readers, and the locks around it.

However many stores a process opens on a file, they share one of these: two would not exclude each other's file locks.
"""

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import apsw

from backstay.errors import StoreUnavailable, UsedAfterFork
from backstay.model.ids import WorkerId
from backstay.store.sqlite.connection import open_reader, open_writer, pragma, refuse_old_sqlite
from backstay.store.sqlite.faults import in_our_words, not_ours, poisons, translated
from backstay.store.sqlite.filelock import LifeLock, WriteLock, lives, locks_of
from backstay.store.sqlite.filesystem import (
    MOUNTS,
    FileIdentity,
    create_private,
    identity,
    refuse_network,
    refuse_replaced,
)
from backstay.store.sqlite.job import Job
from backstay.store.sqlite.migrations import Migration, migrate, refuse_foreign, refuse_foreign_file, shipped
from backstay.store.sqlite.writer import Writer

T = TypeVar("T")


class Database:
    """A file that is open in this process. Writes go through its one writer; reads use connections of their own."""

    def __init__(
        self,
        path: Path,
        file: FileIdentity,
        *,
        name: str,
        vfs: str | None,
        steps: Sequence[Migration],
        wait_seconds: float,
    ) -> None:
        self.path, self.file = path, file
        self.users = 0
        self.forked = False
        self._vfs = vfs
        self._wait_seconds = wait_seconds
        with in_our_words(str(path)):
            refuse_foreign_file(path, steps)
        self._locks = locks_of(path)
        self._life_locks: dict[WorkerId, LifeLock] = {}
        # Idle connections, as many as threads ever read at once; the last one back is the first one out.
        self._readers: list[apsw.Connection] = []
        self._watcher: apsw.Connection | None = None
        self._watching = threading.Lock()
        self._closed = False
        self._write_lock = WriteLock(self._locks / "write")
        try:
            self._prepare(steps)
        except BaseException:
            self._write_lock.close()
            raise
        self._writer = Writer(path, self._write_lock, file, name, vfs)

    def write(self, work: Callable[[apsw.Connection], T], *, seconds: float, durable: bool, alone: bool) -> T:
        """Run the work in a write transaction; return once it is committed, or raise having changed nothing."""
        job = Job(work, durable=durable, alone=alone)
        self._refuse_fork()
        if self._writer.at_once(job):  # type: ignore[arg-type]  # the writer never looks at a job's value
            return job.result()
        self.begin(job)
        if not job.wait(seconds):
            raise self.too_busy(seconds)
        return job.result()

    def begin(self, job: Job[T]) -> None:
        """Put a job in the writer's queue without waiting for it."""
        self._refuse_fork()
        self._writer.submit(job)  # type: ignore[arg-type]  # the writer never looks at a job's value

    def too_busy(self, seconds: float) -> StoreUnavailable:
        """The error for a job that could not begin in time."""
        return StoreUnavailable(
            f"{self.path} could not be written within {seconds:g} s: {self._write_lock.holder()} is writing it",
            hint="Nothing was changed. Try again, or look at what that process does.",
        )

    def read(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run the work on one snapshot."""

        def on_one_snapshot(connection: apsw.Connection) -> T:
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                # An I/O error has ended the transaction already; a second error would hide it.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

        return self.peek(on_one_snapshot)

    def peek(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run work that is a single statement: it needs no snapshot."""
        self._refuse_fork()
        connection = self._borrow_reader()
        try:
            result = work(connection)
        except apsw.Error as error:
            if not poisons(error):
                self._give_back(connection)
            raise translated(error, str(self.path)) from error
        except BaseException:
            self._give_back(connection)
            raise
        self._give_back(connection)
        return result

    def version(self) -> int:
        """A number that changes whenever somebody has committed.

        Always asked of the same connection: the number says what that one has noticed, and compares with nobody else's.
        """
        self._refuse_fork()
        with self._watching, in_our_words(str(self.path)):
            if self._closed:
                raise StoreUnavailable(f"{self.path} is closed", hint="Open the store again.")
            if self._watcher is None:
                refuse_replaced(self.path, self.file)
                self._watcher = open_reader(self.path, self._vfs)
            return pragma(self._watcher, "data_version")

    def enter(self, worker: WorkerId) -> None:
        """Hold the worker's life lock, so that all can see it lives."""
        self._refuse_fork()
        if worker not in self._life_locks:
            self._life_locks[worker] = LifeLock(self._locks / worker)

    def leave(self, worker: WorkerId) -> None:
        """Let go of the worker's life lock, if it has one."""
        lock = self._life_locks.pop(worker, None)
        if lock is not None and not self.forked:
            lock.release()

    def bury(self, worker: WorkerId) -> None:
        """Remove what a dead worker left: its name is never given out again."""
        (self._locks / worker).unlink(missing_ok=True)

    def lives(self, worker: WorkerId) -> bool:
        """Whether the worker's process still holds its life lock."""
        return lives(self._locks / worker)

    def close(self) -> None:
        """Finish what is queued and close every connection; one that is being read is closed by its reader."""
        self._closed = True
        self._close_readers()
        with self._watching:  # A thread whose caller was cancelled may still be asking.
            if self._watcher is not None:
                self._watcher.close()
        self._writer.close(self._wait_seconds)

    def forget(self) -> None:
        """In a forked child: never touch the parent's connections, and do not keep its locks alive."""
        self.forked = True
        self._write_lock.close()
        for lock in self._life_locks.values():
            lock.forget()

    def _prepare(self, steps: Sequence[Migration]) -> None:
        """First contact, behind the lock: ten processes may do this at once on an empty file."""
        with self._write_lock.within(self._wait_seconds), in_our_words(str(self.path)):
            connection = open_writer(self.path, self._vfs)
            try:
                refuse_foreign(connection, str(self.path), steps)
                if connection.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
                    raise StoreUnavailable(f"{self.path} cannot keep a write-ahead log", hint="Use a local disk.")
                migrate(connection, self.path, steps)
            finally:
                connection.close()

    def _borrow_reader(self) -> apsw.Connection:
        try:
            return self._readers.pop()
        except IndexError:
            pass  # All are in use by other threads.
        refuse_replaced(self.path, self.file)
        with in_our_words(str(self.path)):
            return open_reader(self.path, self._vfs)

    def _give_back(self, connection: apsw.Connection) -> None:
        self._readers.append(connection)
        if self._closed:  # Asked after it was given back: whoever closes has either found it there or is seen here.
            self._close_readers()

    def _close_readers(self) -> None:
        with suppress(IndexError):  # Two threads may do this at once.
            while True:
                self._readers.pop().close()

    def _refuse_fork(self) -> None:
        if self.forked:
            raise UsedAfterFork(f"{self.path} was opened by the parent of this process")


_shared: dict[FileIdentity, Database] = {}
_guard = threading.Lock()


def open_database(
    path: Path,
    *,
    name: str,
    wait_seconds: float,
    vfs: str | None = None,
    steps: Sequence[Migration] | None = None,
    mounts: Path = MOUNTS,
) -> Database:
    """This process's one handle on the file; created, migrated and checked if it is the first."""
    refuse_old_sqlite()
    path = path.resolve()
    refuse_network(path, mounts)
    create_private(path)
    if path.exists() and not path.is_file():
        raise not_ours(str(path), "it is a directory" if path.is_dir() else "it is not a regular file")
    with _guard:
        file = identity(path)
        if file is None:
            raise StoreUnavailable(f"{path} vanished while it was being opened")
        if file in _inherited:
            raise UsedAfterFork(f"{path} was open in the parent when this process was forked")
        database = _shared.get(file)
        if database is None:
            database = _shared[file] = Database(
                path, file, name=name, vfs=vfs, steps=steps or shipped(), wait_seconds=wait_seconds
            )
        database.users += 1
        return database


def close_database(database: Database) -> None:
    """Give the handle back; the last one out closes the file."""
    with _guard:
        database.users -= 1
        if database.users == 0 and not database.forked:
            _shared.pop(database.file, None)
            database.close()


# Connections that a child inherited must not be closed by it: closing may checkpoint the parent's log. They are kept
# here so that the garbage collector never does. Nor can the child open the file anew: SQLite, which was forked with it,
# believes that this process still has the parent's locks.
_inherited: dict[FileIdentity, Database] = {}


def _forget_in_child() -> None:
    global _guard  # noqa: PLW0603  # another thread may have held it at the fork and will never release it here
    _guard = threading.Lock()
    for database in _shared.values():
        database.forget()
    _inherited.update(_shared)
    _shared.clear()


os.register_at_fork(after_in_child=_forget_in_child)
