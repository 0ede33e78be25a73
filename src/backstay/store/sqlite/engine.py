"""The SQLite engine: one worker's view of a database that its process may share with others."""

import os
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

import apsw

from backstay.clock import Clock
from backstay.errors import StoreError, StoreUnavailable
from backstay.model.about import About
from backstay.model.ids import IdSource, WorkerId, earliest_worker
from backstay.model.lease import Lease
from backstay.model.limits import Limits
from backstay.store.engine import Pending, Transaction
from backstay.store.queries import Queries, load, shared
from backstay.store.sqlite.connection import pragma
from backstay.store.sqlite.database import close_database, open_database
from backstay.store.sqlite.filesystem import MOUNTS
from backstay.store.sqlite.job import Job
from backstay.store.sqlite.migrations import Migration
from backstay.store.sqlite.transaction import Setting, SqliteTransaction

T = TypeVar("T")

# On one machine all addresses are of one host.
MACHINE = "local"

_MONTH_MS = 30 * 86_400_000
QUERIES: Queries = load(shared(), files("backstay.store.sqlite").joinpath("sql"))


class SqliteEngine:
    """Runs verbs on a SQLite file."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        limits: Limits,
        lease_seconds: float,
        wait_seconds: float,
        vfs: str | None = None,
        steps: Sequence[Migration] | None = None,
        mounts: Path = MOUNTS,
    ) -> None:
        self.limits = limits
        self._clock = clock
        ids = IdSource(clock)
        self.worker: WorkerId = ids.worker()
        self._setting = Setting(
            queries=QUERIES,
            clock=clock,
            ids=ids,
            limits=limits,
            worker=self.worker,
            lease_ms=round(lease_seconds * 1000),
            lapsed=self.lapsed,
        )
        self.wait_seconds = wait_seconds
        self._entered = False
        self._entrance = threading.Lock()
        self._closed = False
        self._database = open_database(
            path, name=self.worker, wait_seconds=wait_seconds, vfs=vfs, steps=steps, mounts=mounts
        )

    def write(self, verb: Callable[[Transaction], T], *, durable: bool = True, alone: bool = False) -> T:
        self._refuse_closed()
        return self._database.write(
            lambda connection: verb(SqliteTransaction(connection, self._setting)),
            seconds=self.wait_seconds,
            durable=durable,
            alone=alone,
        )

    def begin(
        self,
        verb: Callable[[Transaction], T],
        *,
        durable: bool = True,
        alone: bool = False,
        on_done: Callable[[], None],
    ) -> Pending[T]:
        self._refuse_closed()
        job = Job(
            lambda connection: verb(SqliteTransaction(connection, self._setting)),
            durable=durable,
            alone=alone,
            on_done=on_done,
        )
        self._database.begin(job)
        return job

    def give_up(self, pending: Pending[T]) -> StoreUnavailable | None:
        return self._database.too_busy(self.wait_seconds) if pending.claim() else None

    def version(self) -> int:
        self._refuse_closed()
        return self._database.version()

    def heed(self, hint: Callable[[], None]) -> None:
        """The version is a number in memory that processes share; asking for it is as quick as being told."""

    def read(self, verb: Callable[[Transaction], T]) -> T:
        self._refuse_closed()
        return self._database.read(lambda connection: verb(SqliteTransaction(connection, self._setting)))

    def peek(self, verb: Callable[[Transaction], T]) -> T:
        self._refuse_closed()
        return self._database.peek(lambda connection: verb(SqliteTransaction(connection, self._setting)))

    @cached_property
    def host(self) -> str:
        row = self.peek(lambda tx: tx.one("host_of", machine=MACHINE))
        return row[0] if row else MACHINE

    def enter(self) -> None:
        if self._entered:
            return
        with self._entrance:
            if not self._entered:
                self._enter()
                self._entered = True

    def _enter(self) -> None:
        self._database.enter(self.worker)
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
        return lease.holder != self.worker and not self._database.lives(lease.holder)

    def now(self) -> int:
        return self._clock.now()

    def about(self, sessions: int) -> About:
        schema = self._database.peek(lambda connection: pragma(connection, "user_version"))
        workers = self.read(lambda tx: len(tx.all("workers")))
        return About(
            url=f"sqlite:///{self._database.path}",
            engine="SQLite",
            engine_version=apsw.sqlite_lib_version(),
            schema=schema,
            sessions=sessions,
            workers=workers,
        )

    def tidy(self) -> None:
        """Forget workers that are gone, and the marks of writers that began long ago; a living one marks again."""
        gone = [row[0] for row in self.read(lambda tx: tx.all("workers")) if not self._database.lives(row[0])]
        long_ago = earliest_worker(self._clock.now() - _MONTH_MS)
        self.write(lambda tx: [tx.run("drop_worker", worker=worker) for worker in gone])
        for worker in gone:
            self._database.bury(worker)
        self.write(lambda tx: tx.run("old_commits", writer=long_ago))

    def close(self) -> None:
        if self._closed:
            return
        try:
            if self._entered and not self._database.forked:
                self.write(lambda tx: tx.run("drop_worker", worker=self.worker))
        except StoreError:
            pass  # A store that cannot be written must still close; whoever tidies next drops the row.
        finally:
            self._closed = True
            self._database.leave(self.worker)
            close_database(self._database)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self._database.path} is closed", hint="Open the store again.")
