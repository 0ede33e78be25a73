"""The SQLite engine: one worker's view of a database that its process may share with others."""

import os
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import apsw

from backstay.clock import Clock
from backstay.errors import StoreError, StoreUnavailable
from backstay.model.ids import IdSource, WorkerId, earliest_worker
from backstay.model.limits import Limits
from backstay.model.operations.store_info import About
from backstay.store.engine import Lease, Pending, Transaction
from backstay.store.queries import load, shared
from backstay.store.rows import WORKERS, WorkerRow
from backstay.store.sqlite.connection import pragma
from backstay.store.sqlite.database import close_database, open_database
from backstay.store.sqlite.files.file_system import MOUNTS
from backstay.store.sqlite.job import SqliteJob
from backstay.store.sqlite.migrations import SqliteMigration
from backstay.store.sqlite.transaction import SqliteSettings, SqliteTransaction, bound_by_number

T = TypeVar("T")

# All addresses of one machine have the same host.
MACHINE = "local"

_DAY_MS = 86_400_000
_MONTH_MS = 30 * _DAY_MS
STATEMENTS = bound_by_number(load(shared(), Path(__file__).with_name("sql")))


class SqliteEngine:
    """Runs verbs on a SQLite file."""

    min_poll_delay = 0.0
    shows_only_durable = True

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        limits: Limits,
        lease_seconds: float,
        wait_seconds: float,
        vfs: str | None = None,
        steps: Sequence[SqliteMigration] | None = None,
        mounts: Path = MOUNTS,
    ) -> None:
        self.limits = limits
        self._clock = clock
        ids = IdSource(clock)
        self.worker: WorkerId = ids.worker()
        self._setting = SqliteSettings(
            statements=STATEMENTS,
            clock=clock,
            ids=ids,
            limits=limits,
            worker=self.worker,
            lease_ms=round(lease_seconds * 1000),
            lapsed=self.lapsed,
            host=lambda: self.host,
        )
        self.wait_seconds = wait_seconds
        self._registered = False
        self._registration = threading.Lock()
        self._closed = False
        self._hint_watchers: list[Callable[[], None]] = []
        self._database = open_database(
            path, name=self.worker, wait_seconds=wait_seconds, vfs=vfs, steps=steps, mounts=mounts
        )

    def write(
        self,
        verb: Callable[[Transaction], T],
        *,
        durable: bool = True,
        exclusive: bool = False,
        read_first: bool = False,
    ) -> T:
        """Run a verb. `read_first` is not needed: the writer rolls back a transaction that changed nothing."""
        self._refuse_closed()
        return self._database.write(
            lambda connection: verb(SqliteTransaction(connection, self._setting)),
            seconds=self.wait_seconds,
            durable=durable,
            exclusive=exclusive,
        )

    def begin(
        self,
        verb: Callable[[Transaction], T],
        *,
        durable: bool = True,
        exclusive: bool = False,
        read_first: bool = False,
        on_done: Callable[[], None],
    ) -> Pending[T]:
        self._refuse_closed()
        job = SqliteJob(
            lambda connection: verb(SqliteTransaction(connection, self._setting)),
            durable=durable,
            exclusive=exclusive,
            on_done=on_done,
        )
        self._database.writer.submit(job)  # type: ignore[arg-type]  # the writer never looks at a job's value
        return job

    def give_up(self, pending: Pending[T]) -> StoreUnavailable | None:
        return self._database.too_busy(self.wait_seconds) if pending.claim() else None

    def version(self) -> int:
        self._refuse_closed()
        return self._database.version()

    def watch_hints(self, hint: Callable[[], None]) -> None:
        self._refuse_closed()
        self._hint_watchers.append(hint)
        self._database.hints.add(hint)

    def read(self, verb: Callable[[Transaction], T]) -> T:
        self._refuse_closed()
        return self._database.read(lambda connection: verb(SqliteTransaction(connection, self._setting)))

    def peek(self, verb: Callable[[Transaction], T]) -> T:
        self._refuse_closed()
        return self._database.peek(lambda connection: verb(SqliteTransaction(connection, self._setting)))

    def read_now(self, verb: Callable[[Transaction], T], *, snapshot: bool) -> T:
        self._refuse_closed()
        return self._database.read_now(
            lambda connection: verb(SqliteTransaction(connection, self._setting)), snapshot=snapshot
        )

    def version_now(self) -> int:
        self._refuse_closed()
        return self._database.version_now()

    @cached_property
    def host(self) -> str:
        row = self.peek(lambda tx: tx.one("host_of", machine=MACHINE))
        return str(row[0]) if row else MACHINE

    def register_worker(self) -> None:
        if self._registered:
            return
        with self._registration:
            if not self._registered:
                self._add_worker()
                self._registered = True

    def _add_worker(self) -> None:
        # First the lock, then the row: as long as the row exists, so does the lock file. A crash between them leaves a
        # lock file without a row, which `run_upkeep` sweeps (see also `SqliteDatabase.unregister_worker`).
        self._database.register_worker(self.worker)
        self.write(
            lambda tx: tx.run(
                "add_worker",
                worker=self.worker,
                host=os.uname().nodename,
                pid=os.getpid(),
                boot_id=self._clock.boot_id,
                now=tx.now,
            )
        )

    def lapsed(self, lease: Lease) -> bool:
        if lease.boot_id != self._clock.boot_id or lease.until <= self._clock.boot():
            return True
        return lease.holder != self.worker and self._is_gone(lease.holder)

    def _is_gone(self, worker: WorkerId) -> bool:
        """Whether the worker is known to be dead.

        A worker that closed properly has no row. If its row exists and its lock file does not, the lock folder was
        deleted, and the worker may be alive: then only its lease decides.
        """
        state = self._database.lock_state(worker)
        return state == "dead" or (state == "unknown" and self.peek(lambda tx: tx.one("worker", worker=worker)) is None)

    def now(self) -> int:
        return self._clock.now()

    def about(self, sessions: int) -> About:
        schema = self._database.peek(lambda connection: pragma(connection, "user_version"))
        workers = self.read(lambda tx: len(WORKERS.all(tx)))
        return About(
            url=f"sqlite:///{self._database.path}",
            engine="SQLite",
            engine_version=apsw.sqlite_lib_version(),
            schema=schema,
            sessions=sessions,
            workers=workers,
        )

    def run_upkeep(self) -> None:
        """Remove dead workers, and marks of writers that started long ago.

        A living one sets its mark again.
        """
        removed = [worker.id for worker in self.read(WORKERS.all) if self._may_be_forgotten(worker)]
        long_ago = earliest_worker(self._clock.now() - _MONTH_MS)
        # The rows go before the lock files, for the same reason as in `SqliteDatabase.unregister_worker`.
        self.write(lambda tx: tx.run_many("drop_worker", [{"worker": worker} for worker in removed]))
        self._database.sweep(keep=[worker.id for worker in self.read(WORKERS.all)])
        self.write(lambda tx: tx.run("old_commits", writer=long_ago))

    def _may_be_forgotten(self, worker: WorkerRow) -> bool:
        """Whether the worker is dead. One whose lock file was deleted counts as dead after a day."""
        state = self._database.lock_state(worker.id)
        old = worker.boot_id != self._clock.boot_id or worker.started_at < self._clock.now() - _DAY_MS
        return state == "dead" or (state == "unknown" and old)

    def close(self) -> None:
        if self._closed:
            return
        forgotten = False
        try:
            if self._registered and not self._database.forked:
                self.write(lambda tx: tx.run("drop_worker", worker=self.worker))
                forgotten = True
        except StoreError:
            pass  # A store that cannot be written must still close; the next `run_upkeep` removes the row.
        finally:
            self._closed = True
            self._stop_watching_hints()
            self._database.unregister_worker(self.worker, forgotten=forgotten)
            close_database(self._database)

    def _stop_watching_hints(self) -> None:
        if not self._database.forked:
            for hint in self._hint_watchers:
                self._database.hints.remove(hint)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self._database.path} is closed", hint="Open the store again.")
