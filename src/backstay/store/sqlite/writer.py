"""The writer: one thread, one connection, one queue. Jobs that arrive during a commit share the next one."""

import queue
import threading
from contextlib import suppress
from pathlib import Path

import apsw

from backstay.concurrency.ctrl_c import uninterrupted
from backstay.errors import BackstayError, StoreError, StoreReplaced, StoreUnavailable, UsedAfterFork
from backstay.store.engine import SyncNeeded
from backstay.store.sqlite.checkpointer import Checkpointer
from backstay.store.sqlite.connection import Durability, close_quietly, open_writer
from backstay.store.sqlite.faults import breaks_connection, translated
from backstay.store.sqlite.files.file_locks import WriteLock
from backstay.store.sqlite.files.open_files import OpenFiles
from backstay.store.sqlite.files.read_pause import ReadPause
from backstay.store.sqlite.hints import SocketHints
from backstay.store.sqlite.job import SqliteJob

BATCH = 256

_MARK = "INSERT INTO commits VALUES (?, ?) ON CONFLICT (writer) DO UPDATE SET number = excluded.number"


def _nothing(_: apsw.Connection) -> object:
    return None


class Writer:
    """Runs jobs in the order of their arrival, many per transaction, each in a savepoint of its own."""

    def __init__(
        self,
        path: Path,
        lock: WriteLock,
        files: OpenFiles,
        pause: ReadPause,
        hints: SocketHints,
        *,
        name: str,
        vfs: str | None,
        connection: apsw.Connection,
        anchor: apsw.Connection,
    ) -> None:
        self._path, self._lock, self._files, self._name, self._vfs = path, lock, files, name, vfs
        self._queue: queue.SimpleQueue[SqliteJob[object] | None] = queue.SimpleQueue()
        self._deferred: SqliteJob[object] | None = None
        self._connection: apsw.Connection | None = connection
        connection.set_wal_hook(self._on_commit)
        # Keeps the log's index in memory while the writer reconnects. Without it the index would be rebuilt from the
        # log. A commit whose sync failed, and which was reported as failed, would be found there and become visible
        # again.
        self._anchor = anchor
        self._durability: Durability = "FULL"
        self._number = 0
        self._check_needed = False
        self._checkpointer = Checkpointer(pause)
        self._hints = hints
        self._committed = False
        # Held while the connection is used: by the writer's thread, or by the thread of a lone caller.
        self._write_lock = threading.Lock()
        self._contended = False
        self._closing = False
        self.forked = False
        """Whether this is the copy of a forked child, whose thread stayed in the parent."""
        self._close_within = 0.0
        self._submission = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"backstay-writer-{path.name}", daemon=True)
        try:
            self._thread.start()
        except (RuntimeError, MemoryError) as error:
            raise StoreUnavailable(
                f"{path} cannot be written: {error}", hint="Check the limit on threads, and the free memory."
            ) from error

    def submit(self, job: SqliteJob[object]) -> None:
        """Add a job to the queue. Rejected once closing has begun, so that no job is ever left in the queue."""
        if self.forked:  # Read before the lock: a thread of the parent may have held it at the fork.
            raise UsedAfterFork(f"{self._path} was opened by the parent of this process")
        with self._submission:
            if self._closing:
                raise StoreUnavailable(f"{self._path} is closed", hint="Open the store again.")
            self._queue.put(job)

    def at_once(self, job: SqliteJob[object]) -> bool:
        """Run the job on the caller's own thread if no other job runs or waits; False if it must be queued.

        This saves a lone caller two thread switches, which cost as much as the transaction.
        """
        if self._contended or not self._queue.empty():
            return False
        if threading.current_thread() is not threading.main_thread():
            return self._at_once(job)
        return uninterrupted(lambda: self._at_once(job))

    def _at_once(self, job: SqliteJob[object]) -> bool:
        if not self._write_lock.acquire(blocking=False):
            return False
        try:
            if self._closing or not self._lock.at_once():
                return False
            try:
                job.claim()
                self._commit([job])
            finally:
                self._lock.release()
        finally:
            self._write_lock.release()
        self._send_hint()
        if self._checkpointer.due():
            # Checkpoints belong to the thread: no caller should wait for one. An empty job makes the thread run it.
            self._queue.put(SqliteJob(_nothing))
        return True

    def close(self, seconds: float) -> None:
        """Finish the queued jobs, then close the file.

        If another process keeps the lock for longer than this, the thread finishes by itself later.
        """
        with self._submission:
            self._closing = True
            self._close_within = seconds
            self._queue.put(None)
        self._thread.join(seconds + 1)

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                first = self._deferred or self._queue.get(timeout=self._checkpointer.seconds_until_due())
            except queue.Empty:
                self._checkpoint_if_due()
                continue
            self._deferred = None
            if first is None:
                break
            self._write(first)
            self._checkpoint_if_due()
        self._release()

    def _release(self) -> None:
        """Close the connection, under the lock: the last connection to close writes the log back into the file."""
        self._checkpointer.close()
        try:
            with self._write_lock, self._lock.within(self._close_within):
                self._close_connection(copy_log=self._files.may_copy_log())
        except (StoreError, OSError):
            # Another process has the lock, so we are not the last: it, or the next process to open the file, copies the
            # log. If the lock file was deleted, no process has the lock.
            self._close_connection(copy_log=self._files.may_copy_log_unlocked())
        self._files.close()
        self._lock.close()

    def _close_connection(self, *, copy_log: bool) -> None:
        # First: this may delete the log, and from then on a process that opens the database finds another one.
        self._files.end_use()
        if self._connection is not None and not copy_log:
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        close_quietly(self._anchor)
        self._disconnect()

    def _write(self, first: SqliteJob[object]) -> None:
        batch: list[SqliteJob[object]] = []
        try:
            with self._write_lock, self._lock:
                batch = self._claim_with(first)
                self._contended = len(batch) > 1
                if batch:
                    self._commit(batch)
        except OSError as error:
            batch = batch or ([first] if first.claim() else [])
            self._fail(batch, StoreUnavailable(f"the lock beside {self._path} failed: {error}"))
        except Exception as error:  # noqa: BLE001  # every waiting caller must get the error
            batch = batch or ([first] if first.claim() else [])
            self._fail(batch, error)
        for job in batch:
            job.deliver()
        self._send_hint()

    def _claim_with(self, first: SqliteJob[object]) -> list[SqliteJob[object]]:
        """This job and those queued behind it, up to `BATCH`.

        A job with `exclusive` is the whole batch, or starts the next one.
        """
        batch = [first] if first.claim() else []
        while len(batch) < BATCH and not first.exclusive:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._queue.put(None)
                break
            if job.exclusive:
                self._deferred = job
                break
            if job.claim():
                batch.append(job)
        return batch

    def _commit(self, batch: list[SqliteJob[object]]) -> None:
        # The number grows first: if anything fails from here on, the mark of an older transaction is not mistaken
        # for ours.
        self._number += 1
        try:
            connection = self._trusted()
            self._set_durability(connection, "FULL" if any(job.durable for job in batch) else "NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            before = connection.total_changes()
            if len(batch) == 1:
                self._attempt_alone(connection, batch[0])
            else:
                for job in batch:
                    self._attempt(connection, job)
            # Without a change, or if every job failed, roll back: a commit would change the version and wake every
            # poller.
            if connection.total_changes() == before or all(job.error for job in batch):
                connection.execute("ROLLBACK")
            else:
                connection.execute(_MARK, (self._name, self._number))
                connection.execute("COMMIT")
                # After the commit: if the file was deleted meanwhile, the commit went to a file that no process will
                # open again.
                self._files.refuse_unlinked()
        except SyncNeeded:
            self._roll_back()
            for job in batch:
                job.durable, job.error = True, None
            self._commit(batch)
        except (apsw.Error, BackstayError) as error:
            self._settle(batch, error)

    def _attempt_alone(self, connection: apsw.Connection, job: SqliteJob[object]) -> None:
        """Run the only job of a transaction.

        If it fails, the whole transaction is rolled back, so it needs no savepoint.
        """
        try:
            job.attempt(connection)
        except apsw.Error as error:
            if isinstance(error, apsw.FullError) or breaks_connection(error) or not connection.in_transaction:
                raise
            job.error = translated(error, str(self._path))
        except SyncNeeded:
            raise
        except BaseException as error:  # noqa: BLE001  # an exception of the verb belongs to its caller
            job.error = error

    def _attempt(self, connection: apsw.Connection, job: SqliteJob[object]) -> None:
        """Run one job so that its failure does not affect the others of the batch."""
        connection.execute("SAVEPOINT job")
        try:
            job.attempt(connection)
        except apsw.Error as error:
            # A full or failing disk concerns the whole batch; a violated constraint only this job.
            if isinstance(error, apsw.FullError) or breaks_connection(error) or not connection.in_transaction:
                raise
            connection.execute("ROLLBACK TO job")
            job.error = translated(error, str(self._path))
        except SyncNeeded:
            raise
        except BaseException as error:  # noqa: BLE001  # an exception of the verb belongs to its caller
            connection.execute("ROLLBACK TO job")
            job.error = error
        connection.execute("RELEASE job")

    def _settle(self, batch: list[SqliteJob[object]], error: Exception) -> None:
        """Fail the batch, unless the error came after the commit had happened: then the file decides."""
        committed = False
        if isinstance(error, apsw.Error):
            self._roll_back()
            if breaks_connection(error):
                self._disconnect()
                self._check_needed = True
                committed = self._was_committed()
            elif isinstance(error, apsw.ReadOnlyError):
                # The connection was made while the file, or its log, was read-only. The next write opens another.
                self._disconnect()
            error = translated(error, str(self._path))
        if not committed:
            self._fail(batch, error)

    def _fail(self, batch: list[SqliteJob[object]], error: Exception) -> None:
        for job in batch:
            job.error = job.error or error

    def _roll_back(self) -> None:
        connection = self._connection
        try:
            if connection is not None and connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error:
            self._disconnect()

    def _was_committed(self) -> bool:
        """Whether the transaction with the current number is in the file after all, durably."""
        try:
            row = self._connected().execute("SELECT number FROM commits WHERE writer = ?", (self._name,)).fetchone()
            return row is not None and row[0] == self._number and self._trusted() is not None
        except (apsw.Error, BackstayError):
            return False

    # --- the connection ---------------------------------------------------------------------------------------------

    def _connected(self) -> apsw.Connection:
        try:
            self._files.refuse_replaced()
        except StoreReplaced:
            self._save_log()
            raise
        if self._connection is None:
            self._connection = open_writer(self._path, self._vfs)
            self._connection.set_wal_hook(self._on_commit)
            self._durability = "FULL"
        return self._connection

    def _save_log(self) -> None:
        """Copy a deleted log into the file, as long as that is safe: it contains acknowledged commits."""
        connection = self._connection
        if connection is not None and self._files.may_copy_log():
            with suppress(apsw.Error):
                self._set_durability(connection, "FULL")
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _trusted(self) -> apsw.Connection:
        """The connection, once everything that it shows is known to be on the disk.

        After a failed sync the operating system may have dropped data that it had not written, and a later sync would
        not restore it. So before anything is acknowledged again, the whole log is copied into the file, and the file is
        synced.
        """
        connection = self._connected()
        if self._check_needed:
            self._set_durability(connection, "FULL")
            pages, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
            if pages != copied:
                raise StoreUnavailable(f"{self._path} had an I/O error and its log could not be copied yet")
            self._check_needed = False
        return connection

    def _set_durability(self, connection: apsw.Connection, wanted: Durability) -> None:
        if self._durability != wanted:
            connection.execute(f"PRAGMA synchronous = {wanted}")
            self._durability = wanted

    def _on_commit(self, connection: apsw.Connection, database: str, pages: int) -> int:
        self._checkpointer.committed(pages)
        self._committed = True
        return apsw.SQLITE_OK

    def _send_hint(self) -> None:
        """Notify other processes of a commit, after its locks were released and its callers have their results."""
        if self._committed:
            self._committed = False
            self._hints.committed()

    def _checkpoint_if_due(self) -> None:
        """Copy the log back into the file. No caller waits for it, but other processes cannot write meanwhile."""
        if not self._checkpointer.due():
            return
        try:
            with self._write_lock, self._lock:
                connection = self._connected()
                self._set_durability(connection, "FULL")
                self._checkpointer.run(connection)
        except (apsw.Error, BackstayError, OSError):
            # The next write will meet the error and report it.
            self._checkpointer.failed()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            close_quietly(connection)
