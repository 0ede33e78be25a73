"""The PostgreSQL engine: one worker's view of a database that many machines share."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

from psycopg import Cursor
from psycopg.rows import TupleRow

from backstay.clock import Clock, SystemClock
from backstay.errors import StoreError, StoreUnavailable
from backstay.model.about import About
from backstay.model.ids import IdSource, WorkerId
from backstay.model.lease import Lease
from backstay.model.limits import Limits
from backstay.store.engine import Pending, Transaction
from backstay.store.postgres.conninfo import Place
from backstay.store.postgres.database import Database
from backstay.store.postgres.hints import Hints
from backstay.store.postgres.job import Job
from backstay.store.postgres.migrations import Migration, migrate, shipped
from backstay.store.postgres.servertime import ServerTime
from backstay.store.postgres.statements import reading, writing
from backstay.store.postgres.transaction import PostgresTransaction, ReadingTransaction, Setting

T = TypeVar("T")

_DAY_MS = 86_400_000
_READING = reading()
_WRITING = writing()


class PostgresEngine:
    """Runs verbs on a PostgreSQL server."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None,
        limits: Limits,
        lease_seconds: float,
        wait_seconds: float,
        steps: Sequence[Migration] | None = None,
    ) -> None:
        self.limits = limits
        self.wait_seconds = wait_seconds
        self._time = ServerTime(clock)
        ids = IdSource(clock or SystemClock())
        self.worker: WorkerId = ids.worker()
        self._setting = Setting(
            time=self._time,
            ids=ids,
            limits=limits,
            worker=self.worker,
            lease_ms=round(lease_seconds * 1000),
        )
        self._entered_until = 0
        self._entrance = threading.Lock()
        self._closed = False
        self._hints: Hints | None = None
        self._schema, self._version = 0, 0
        place = Place(url)
        # Writes that are begun without waiting share these threads; the rest of the connections is for those who read.
        self._writers = place.connections // 2
        self._threads = ThreadPoolExecutor(self._writers, thread_name_prefix="backstay-writer")
        self._database = Database(
            place, name=self.worker, wait_seconds=wait_seconds, patience=max(wait_seconds, lease_seconds)
        )
        try:
            self._open(shipped() if steps is None else steps)
        except BaseException:
            self._let_go()
            raise

    def _open(self, steps: Sequence[Migration]) -> None:
        with self._database.connect() as wire:
            self._version = wire.version
            self._schema, server_time = migrate(wire, str(self._database.place), steps)
            self._time.heard(server_time)
            # Asked now: later it might be an event loop that waits for the answer.
            row = wire.execute("SELECT host FROM hosts WHERE machine = %s", (machine(),)).fetchone()
            self.host: str = row[0] if row else machine()

    def write(self, verb: Callable[[Transaction], T], *, durable: bool = True, alone: bool = False) -> T:
        self._refuse_closed()

        def work(cursor: Cursor[TupleRow], server_time: int) -> tuple[T, bool]:
            self._time.heard(server_time)
            tx = PostgresTransaction(cursor, _WRITING, self._setting)
            return verb(tx), tx.wrote

        value, wrote = self._database.write(work, durable=durable)
        if wrote and self._hints is not None:
            self._hints.committed()
        return value

    def begin(
        self,
        verb: Callable[[Transaction], T],
        *,
        durable: bool = True,
        alone: bool = False,
        on_done: Callable[[], None],
    ) -> Pending[T]:
        self._refuse_closed()
        return Job(self._threads.submit(self.write, verb, durable=durable, alone=alone), on_done)

    def give_up(self, pending: Pending[T]) -> StoreUnavailable | None:
        if not pending.claim():
            return None
        return StoreUnavailable(
            f"{self._writers} writes to {self._database.place} took longer than {self.wait_seconds:g} s",
            hint="Try again; look at what the server is busy with, or at who holds a lock there (pg_stat_activity).",
        )

    def version(self) -> int:
        self._refuse_closed()
        return self._database.read(_version)

    def heed(self, hint: Callable[[], None]) -> None:
        self._refuse_closed()
        if self._hints is None:
            self._hints = Hints(self._database, self.worker, hint)

    def read(self, verb: Callable[[Transaction], T]) -> T:
        self._refuse_closed()
        return self._database.read(
            lambda cursor: verb(ReadingTransaction(cursor, _READING, self._setting, self._database.begin_reading))
        )

    def peek(self, verb: Callable[[Transaction], T]) -> T:
        self._refuse_closed()
        return self._database.read(lambda cursor: verb(PostgresTransaction(cursor, _READING, self._setting)))

    def enter(self) -> None:
        """A worker at work says so once a day; what is not heard of for two days, and holds nothing, is forgotten."""
        if self._time.boot() < self._entered_until:
            return
        with self._entrance:
            now = self._time.boot()
            if now >= self._entered_until:
                self._enter()
                self._entered_until = now + _DAY_MS

    def _enter(self) -> None:
        self.write(
            lambda tx: tx.run(
                "add_worker",
                worker=self.worker,
                host=os.uname().nodename,
                pid=os.getpid(),
                boot_id=self._time.boot_id,
                now=tx.now,
            )
        )

    def lapsed(self, lease: Lease) -> bool:
        return self._time.lapsed(lease)

    def now(self) -> int:
        return self._time.now()

    def about(self, sessions: int) -> About:
        return About(
            url=str(self._database.place),
            engine="PostgreSQL",
            engine_version=f"{self._version // 10_000}.{self._version % 10_000}",
            schema=self._schema,
            sessions=sessions,
            workers=self.peek(lambda tx: len(tx.all("workers"))),
        )

    def tidy(self) -> None:
        """Forget workers that hold nothing and were not at work lately, and marks that nobody can ask for any more."""
        self.write(lambda tx: tx.run("old_workers", moment=tx.now - 2 * _DAY_MS))
        self.write(lambda tx: tx.run("old_commits"))

    def close(self) -> None:
        if self._closed:
            return
        try:
            if self._entered_until:
                self.write(self._leave)
        except StoreError:
            pass  # A store that cannot be written must still close; its leases lapse by themselves.
        finally:
            self._closed = True
            self._let_go()

    def _leave(self, tx: Transaction) -> None:
        tx.run("release_leases", worker=self.worker)
        tx.run("drop_worker", worker=self.worker)

    def _let_go(self) -> None:
        if self._hints is not None:
            self._hints.close()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._database.close()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self._database.place} is closed", hint="Open the store again.")


def _version(cursor: Cursor[TupleRow]) -> int:
    """Which transactions can be seen, as one number: it changes in the moment in which a commit becomes visible."""
    row = cursor.execute("SELECT CAST(pg_current_snapshot() AS text)").fetchone()
    seen = row[0] if row else ""
    return int.from_bytes(blake2b(seen.encode(), digest_size=7).digest())


def machine() -> str:
    """What names this machine among all that use the database."""
    try:
        found = Path("/etc/machine-id").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        found = ""
    return found or os.uname().nodename
