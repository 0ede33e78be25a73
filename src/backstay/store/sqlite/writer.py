"""The writer: one thread, one connection, one queue. Jobs that arrive during a commit share the next one."""

import queue
import threading
from pathlib import Path

import apsw

from backstay.errors import BackstayError, StoreUnavailable
from backstay.store.signals import undisturbed
from backstay.store.sqlite.connection import Durability, open_reader, open_writer
from backstay.store.sqlite.faults import poisons, translated
from backstay.store.sqlite.filelock import WriteLock
from backstay.store.sqlite.filesystem import FileIdentity, refuse_replaced
from backstay.store.sqlite.job import Job

BATCH = 256
CHECKPOINT_PAGES = 1_000

_MARK = "INSERT INTO commits VALUES (?, ?) ON CONFLICT (writer) DO UPDATE SET number = excluded.number"


def _nothing(_: apsw.Connection) -> object:
    return None


class Writer:
    """Runs jobs in the order they come, many to a transaction, each in a savepoint of its own."""

    def __init__(self, path: Path, lock: WriteLock, file: FileIdentity, name: str, vfs: str | None) -> None:
        self._path, self._lock, self._file, self._name, self._vfs = path, lock, file, name, vfs
        self._queue: queue.SimpleQueue[Job[object] | None] = queue.SimpleQueue()
        self._left: Job[object] | None = None
        self._connection: apsw.Connection | None = None
        # Keeps the log's index in memory while the writer reconnects. Without it the index would be rebuilt from the
        # log, where a commit whose sync failed, and which was refused, would be found and come back to life.
        self._anchor: apsw.Connection | None = None
        self._durability: Durability = "FULL"
        self._number = 0
        self._suspect = False
        self._wal_pages = 0
        self._checkpoint_at = CHECKPOINT_PAGES
        # Whoever has the pen uses the connection: the writer's thread, or a lone caller's.
        self._pen = threading.Lock()
        self._crowded = False
        self._closing = False
        self._close_within = 0.0
        self._entrance = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"backstay-writer-{path.name}", daemon=True)
        self._thread.start()

    def submit(self, job: Job[object]) -> None:
        """Put a job in the queue. Once closing has begun none gets in, so none is ever left behind in it."""
        with self._entrance:
            if self._closing:
                raise StoreUnavailable(f"{self._path} is closed", hint="Open the store again.")
            self._queue.put(job)

    def at_once(self, job: Job[object]) -> bool:
        """Run the job on the caller's own thread if nobody else writes or waits; False if it must queue.

        Spares a lone caller two changes of threads, which cost as much as the transaction.
        """
        if self._crowded or not self._queue.empty():
            return False
        if threading.current_thread() is not threading.main_thread():
            return self._at_once(job)
        return undisturbed(lambda: self._at_once(job))

    def _at_once(self, job: Job[object]) -> bool:
        if not self._pen.acquire(blocking=False):
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
            self._pen.release()
        if self._wal_pages >= self._checkpoint_at:
            # The thread's work, for which nobody should wait: a job that does nothing takes it past its checkpoint.
            self._queue.put(Job(_nothing))
        return True

    def close(self, seconds: float) -> None:
        """Finish what is queued, then let go of the file.

        If another process keeps the lock for longer than this, the thread is left to finish by itself.
        """
        with self._entrance:
            self._closing = True
            self._close_within = seconds
            self._queue.put(None)
        self._thread.join(seconds + 1)

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            first = self._left or self._queue.get()
            self._left = None
            if first is None:
                break
            self._write(first)
        self._let_go()

    def _let_go(self) -> None:
        """Close the connection, under the lock, because the last one out writes the log back into the file."""
        try:
            with self._pen, self._lock.within(self._close_within):
                self._weigh_anchor()
                self._disconnect()
        except (StoreUnavailable, OSError):
            # Somebody else holds the lock and is not the last one out: they, or the next to open, copy the log.
            if self._connection is not None:
                self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self._weigh_anchor()
            self._disconnect()
        self._lock.close()

    def _write(self, first: Job[object]) -> None:
        batch: list[Job[object]] = []
        try:
            with self._pen, self._lock:
                batch = self._claim_with(first)
                self._crowded = len(batch) > 1
                if batch:
                    self._commit(batch)
        except OSError as error:
            batch = batch or ([first] if first.claim() else [])
            self._fail(batch, StoreUnavailable(f"the lock beside {self._path} failed: {error}"))
        except Exception as error:  # noqa: BLE001  # whoever waits must be told, whatever went wrong
            batch = batch or ([first] if first.claim() else [])
            self._fail(batch, error)
        for job in batch:
            job.deliver()
        with self._pen:
            self._checkpoint_if_due()

    def _claim_with(self, first: Job[object]) -> list[Job[object]]:
        """This job and those that queued up behind it; a job that wants to be alone ends or makes up the batch."""
        batch = [first] if first.claim() else []
        while len(batch) < BATCH and not first.alone:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._queue.put(None)
                break
            if job.alone:
                self._left = job
                break
            if job.claim():
                batch.append(job)
        return batch

    def _commit(self, batch: list[Job[object]]) -> None:
        # The number grows first: whatever fails from here on, no older transaction's mark is taken for this one's.
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
            if connection.total_changes() == before or all(job.error for job in batch):
                connection.execute("ROLLBACK")
            else:
                connection.execute(_MARK, (self._name, self._number))
                connection.execute("COMMIT")
        except (apsw.Error, BackstayError) as error:
            self._settle(batch, error)

    def _attempt_alone(self, connection: apsw.Connection, job: Job[object]) -> None:
        """Run the only job of a transaction: if it fails, all of it is rolled back, so it needs no savepoint."""
        try:
            job.attempt(connection)
        except apsw.Error as error:
            if isinstance(error, apsw.FullError) or poisons(error) or not connection.in_transaction:
                raise
            job.error = translated(error, str(self._path))
        except BaseException as error:  # noqa: BLE001  # whatever the verb raised belongs to its caller
            job.error = error

    def _attempt(self, connection: apsw.Connection, job: Job[object]) -> None:
        """Run one job so that its failure leaves the others of the batch untouched."""
        connection.execute("SAVEPOINT job")
        try:
            job.attempt(connection)
        except apsw.Error as error:
            # A full disk or a failing one concerns the whole batch; a broken constraint only this job.
            if isinstance(error, apsw.FullError) or poisons(error) or not connection.in_transaction:
                raise
            connection.execute("ROLLBACK TO job")
            job.error = translated(error, str(self._path))
        except BaseException as error:  # noqa: BLE001  # whatever the verb raised belongs to its caller
            connection.execute("ROLLBACK TO job")
            job.error = error
        connection.execute("RELEASE job")

    def _settle(self, batch: list[Job[object]], error: Exception) -> None:
        """Nothing of the batch happened, unless the error came after the commit had: then the disk is asked."""
        committed = False
        if isinstance(error, apsw.Error):
            self._roll_back()
            if poisons(error):
                self._disconnect()
                self._suspect = True
                committed = self._was_committed()
            error = translated(error, str(self._path))
        if not committed:
            self._fail(batch, error)

    def _fail(self, batch: list[Job[object]], error: Exception) -> None:
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
        """Whether the transaction with the current number is in the file after all, and there to stay."""
        try:
            row = self._connected().execute("SELECT number FROM commits WHERE writer = ?", (self._name,)).fetchone()
            return row is not None and row[0] == self._number and self._trusted() is not None
        except (apsw.Error, BackstayError):
            return False

    # --- the connection ---------------------------------------------------------------------------------------------

    def _connected(self) -> apsw.Connection:
        refuse_replaced(self._path, self._file)
        if self._connection is None:
            self._connection = open_writer(self._path, self._vfs)
            self._connection.set_wal_hook(self._on_commit)
            self._durability = "FULL"
        if self._anchor is None:
            self._anchor = open_reader(self._path, self._vfs)
            self._anchor.execute("SELECT 1 FROM sqlite_schema").fetchall()
        return self._connection

    def _trusted(self) -> apsw.Connection:
        """The connection, once everything it shows is known to be on the disk.

        After a failed sync the system may have forgotten what it had not written yet, and a later sync would not bring
        it back. So before anything is promised again, the whole log is copied into the file, and that is synced.
        """
        connection = self._connected()
        if self._suspect:
            self._set_durability(connection, "FULL")
            pages, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
            if pages != copied:
                raise StoreUnavailable(f"{self._path} had an I/O error and its log could not be copied yet")
            self._suspect = False
        return connection

    def _set_durability(self, connection: apsw.Connection, wanted: Durability) -> None:
        if self._durability != wanted:
            connection.execute(f"PRAGMA synchronous = {wanted}")
            self._durability = wanted

    def _on_commit(self, connection: apsw.Connection, database: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint_if_due(self) -> None:
        """Copy the log back into the file: no caller waits for it, but other processes' turnstile is closed."""
        if self._wal_pages < self._checkpoint_at:
            return
        try:
            with self._lock:
                self._set_durability(self._connected(), "FULL")
                pages, copied = self._connected().wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            # A reader that holds an old snapshot keeps the log from being reused: try again when it has grown.
            self._checkpoint_at = CHECKPOINT_PAGES if pages == copied else pages + CHECKPOINT_PAGES
            self._wal_pages = 0
        except (apsw.Error, BackstayError, OSError):
            # Nothing is lost: the log still has everything. The next write will meet the fault and report it.
            self._checkpoint_at = self._wal_pages + CHECKPOINT_PAGES

    def _weigh_anchor(self) -> None:
        anchor, self._anchor = self._anchor, None
        if anchor is not None:
            anchor.close(True)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.close()
        except apsw.Error:
            # The file is in the state of the last commit whether or not the handle closes cleanly.
            connection.close(True)
