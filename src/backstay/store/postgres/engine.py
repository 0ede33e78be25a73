"""The PostgreSQL engine: one worker's view of a database that many machines share."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from backstay.clock import Clock, SystemClock
from backstay.errors import StoreError, StoreUnavailable
from backstay.model.ids import IdSource, WorkerId
from backstay.model.limits import Limits
from backstay.model.operations.store_info import About
from backstay.store.engine import Lease, Parameter, Pending, SyncNeeded, Transaction, WouldBlock
from backstay.store.postgres.conninfo import ConnectionTarget
from backstay.store.postgres.database import Ending, PostgresDatabase
from backstay.store.postgres.job import PostgresJob
from backstay.store.postgres.migrations import PostgresMigration, migrate, shipped
from backstay.store.postgres.protocol.pipeline import Pipeline
from backstay.store.postgres.server_time import ServerTime
from backstay.store.postgres.statements import reading, writing
from backstay.store.postgres.transaction import (
    PostgresSettings,
    PostgresTransaction,
    ReadingTransaction,
    TrialTransaction,
    WouldWrite,
)
from backstay.store.postgres.watch.hints import Hints
from backstay.store.postgres.watch.lease_watch import LeaseWatch
from backstay.store.postgres.watch.version_reader import VersionReader

T = TypeVar("T")

_DAY_MS = 86_400_000
_READING = reading()
_WRITING = writing()


class PostgresEngine:
    """Runs verbs on a PostgreSQL server."""

    # Every process polls the same server, so each acts on at most forty hints per second.
    min_poll_delay = 0.025
    # See `PostgresTransaction.commit_unchanged`.
    shows_only_durable = False

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None,
        limits: Limits,
        lease_seconds: float,
        wait_seconds: float,
        steps: Sequence[PostgresMigration] | None = None,
    ) -> None:
        self.limits = limits
        self.wait_seconds = wait_seconds
        self._time = ServerTime(clock)
        self._watch = LeaseWatch(self._time)
        ids = IdSource(clock or SystemClock())
        self.worker: WorkerId = ids.worker()
        self._setting = PostgresSettings(
            time=self._time,
            watch=self._watch,
            ids=ids,
            limits=limits,
            worker=self.worker,
            lease_ms=round(lease_seconds * 1000),
            host=lambda: self.host,
        )
        self._registered_until = 0
        self._registration = threading.Lock()
        self._closed = False
        self._hints: Hints | None = None
        self._versions = VersionReader()
        self._schema, self._version = 0, 0
        target = ConnectionTarget(url)
        # Writes started by `begin` share these threads; the remaining connections are for readers.
        self._writers = target.connections // 2
        self._threads = ThreadPoolExecutor(self._writers, thread_name_prefix="backstay-writer")
        self._database = PostgresDatabase(
            target, name=self.worker, wait_seconds=wait_seconds, look_up_seconds=max(wait_seconds, lease_seconds)
        )
        try:
            self._open(shipped() if steps is None else steps)
        except BaseException:
            self._release()
            raise

    def _open(self, steps: Sequence[PostgresMigration]) -> None:
        with self._database.connect() as connection:
            self._version = connection.version
            self._schema, server_time = migrate(connection, str(self._database.target), steps)
            self._time.set_server_time(server_time)
            # Read now: later an event loop might have to wait for the answer.
            row = connection.execute("SELECT host FROM hosts WHERE machine = %s", (machine(),)).fetchone()
            self.host: str = row[0] if row else machine()

    def write(
        self,
        verb: Callable[[Transaction], T],
        *,
        durable: bool = True,
        exclusive: bool = False,
        read_first: bool = False,
    ) -> T:
        self._refuse_closed()
        if read_first:
            with suppress(WouldWrite):
                return self._try(verb)
        try:
            return self._write(verb, durable=durable)
        except SyncNeeded:
            return self._write(verb, durable=True)

    def _write(self, verb: Callable[[Transaction], T], *, durable: bool) -> T:
        def work(pipeline: Pipeline) -> tuple[T, Ending]:
            tx = PostgresTransaction(pipeline, _WRITING, self._setting, durable=durable)
            return verb(tx), tx.ending

        value, ending = self._database.write(work, durable=durable, set_time=self._time.set_server_time)
        if ending == "commit" and self._hints is not None:
            self._hints.committed()
        return value

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
        return PostgresJob(
            self._threads.submit(self.write, verb, durable=durable, exclusive=exclusive, read_first=read_first), on_done
        )

    def _try(self, verb: Callable[[Transaction], T]) -> T:
        """The result of the verb if it has nothing to change; otherwise `WouldWrite`.

        A snapshot locks no row and writes nothing, so it is quicker than a write transaction that is undone.
        """
        return self._database.read(lambda pipeline: verb(TrialTransaction(pipeline, _READING, self._setting)))

    def give_up(self, pending: Pending[T]) -> StoreUnavailable | None:
        if not pending.claim():
            return None
        return StoreUnavailable(
            f"{self._writers} writes to {self._database.target} took longer than {self.wait_seconds:g} s",
            hint="Try again; check in pg_stat_activity what the server is doing and which session holds a lock.",
        )

    def version(self) -> int:
        self._refuse_closed()
        return self._database.read(lambda pipeline: self._versions.read(pipeline, self._database.disconnected_at))

    def watch_hints(self, hint: Callable[[], None]) -> None:
        self._refuse_closed()
        if self._hints is None:
            self._hints = Hints(self._database, self.worker, hint)

    def read(self, verb: Callable[[Transaction], T]) -> T:
        self._refuse_closed()
        return self._database.read(lambda pipeline: verb(ReadingTransaction(pipeline, _READING, self._setting)))

    def peek(self, verb: Callable[[Transaction], T]) -> T:
        self._refuse_closed()
        return self._database.read(lambda pipeline: verb(PostgresTransaction(pipeline, _READING, self._setting)))

    def read_now(self, verb: Callable[[Transaction], T], *, snapshot: bool) -> T:
        """Raise: every read waits for the server."""
        raise WouldBlock

    def version_now(self) -> int:
        """Raise: every read waits for the server."""
        raise WouldBlock

    def register_worker(self) -> None:
        """Register this worker, again once a day. Workers not registered for two days that hold nothing are removed."""
        if self._time.boot() < self._registered_until:
            return
        with self._registration:
            now = self._time.boot()
            if now >= self._registered_until:
                self._add_worker()
                self._registered_until = now + _DAY_MS

    def _add_worker(self) -> None:
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
        if self._watch.needs_stored(lease):
            self.peek(lambda tx: self._watch.recall(tx.all("sightings", boot_id=self._watch.boot_id)))
        return self._watch.lapsed(lease)

    def now(self) -> int:
        return self._time.now()

    def about(self, sessions: int) -> About:
        return About(
            url=str(self._database.target),
            engine="PostgreSQL",
            engine_version=f"{self._version // 10_000}.{self._version % 10_000}",
            schema=self._schema,
            sessions=sessions,
            workers=self.peek(lambda tx: len(tx.all("workers"))),
        )

    def run_upkeep(self) -> None:
        """Remove workers that hold nothing and were not registered lately, and unusable commit marks and sightings."""
        self.write(self._forget_old, read_first=True)

    @staticmethod
    def _forget_old(tx: Transaction) -> None:
        moment = tx.now - 2 * _DAY_MS
        if tx.one("any_old_workers", moment=moment):
            tx.run("old_workers", moment=moment)
        if tx.one("any_old_commits"):
            tx.run("old_commits")
        if tx.one("any_old_sightings"):
            tx.run("old_sightings")

    def close(self) -> None:
        if self._closed:
            return
        try:
            sightings = self._watch.to_store()
            if self._registered_until or sightings:
                self.write(partial(self._remove_worker, sightings=sightings))
        except StoreError:
            pass  # A store that cannot be written must still close; its leases expire by themselves.
        finally:
            self._closed = True
            self._release()

    def _remove_worker(self, tx: Transaction, sightings: Sequence[Mapping[str, Parameter]]) -> None:
        if self._registered_until:
            tx.run("release_leases", worker=self.worker)
            tx.run("release_gateways", worker=self.worker)
            tx.run("drop_worker", worker=self.worker)
        tx.run_many("add_sightings", sightings)

    def _release(self) -> None:
        if self._hints is not None:
            self._hints.close()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._database.close()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self._database.target} is closed", hint="Open the store again.")


def machine() -> str:
    """The name of this machine among all that use the database."""
    try:
        found = Path("/etc/machine-id").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        found = ""
    return found or os.uname().nodename
