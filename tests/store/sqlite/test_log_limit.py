"""The write-ahead log stays small with any number of readers, and after faults of the checkpointer."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from backstay.model import message as m
from backstay.model.limits import Limits
from backstay.store import Store
from backstay.store.engine import Transaction
from backstay.store.sqlite.checkpointer import LIMIT_BYTES
from backstay.store.sqlite.engine import SqliteEngine
from backstay.store.sqlite.files.read_pause import LONGEST_SECONDS, ReadPause
from backstay.testing import ManualClock
from tests.crash.worker_processes import PATIENCE, PROCESSES, die
from tests.open_sqlite import open_sqlite
from tests.simulated_disk import Disk, Step, Write

ME = "me"
READERS = 4


class Relay:
    """Overlapping reads: one runs at every moment, unless a pause is requested.

    Each lasts until another one has begun, and until so many writes were made.
    """

    def __init__(self, engine: SqliteEngine, path: Path, writes: int) -> None:
        self._engine, self._pause, self._lasting = engine, pause_of(path), writes
        self._changed = threading.Condition()
        self._begun = self._written = 0
        self._over = False

    @contextmanager
    def running(self, readers: int) -> Iterator[None]:
        threads = [threading.Thread(target=self._read_all_the_time) for _ in range(readers)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over = True
            for thread in threads:
                thread.join(PATIENCE)
            self._pause.close()

    def written(self) -> None:
        with self._changed:
            self._written += 1
            self._changed.notify_all()

    def _read_all_the_time(self) -> None:
        while not self._over:
            self._engine.read(self._read)

    def _read(self, tx: Transaction) -> None:
        tx.all("workers")
        with self._changed:
            self._begun += 1
            self._changed.notify_all()
            begun, written = self._begun, self._written
            while not self._over and not self._may_end(begun, written):
                self._changed.wait(0.01)

    def _may_end(self, begun: int, written: int) -> bool:
        another = self._begun > begun or self._pause.lasts()
        return another and self._written >= written + self._lasting


def opened(path: Path) -> SqliteEngine:
    return SqliteEngine(path, clock=ManualClock(), limits=Limits(), lease_seconds=30, wait_seconds=60)


def pause_of(path: Path) -> ReadPause:
    return ReadPause(Path(f"{path}.locks/pause"))


def read_until_told(path: Path, begun: threading.Event, over: threading.Event) -> None:
    """Read in another process."""
    engine = opened(path)
    with Relay(engine, path, 0).running(2):
        begun.set()
        over.wait(PATIENCE)
    engine.close()


@contextmanager
def another_process_reading(path: Path) -> Iterator[None]:
    begun, over = PROCESSES.Event(), PROCESSES.Event()
    process = PROCESSES.Process(target=read_until_told, args=(path, begun, over))
    process.start()
    assert begun.wait(PATIENCE)
    try:
        yield
    finally:
        over.set()
        process.join(PATIENCE)
        assert process.exitcode == 0


def size_of_log(path: Path) -> int:
    return path.with_name(f"{path.name}-wal").stat().st_size


def test_the_log_stays_small_while_reads_overlap_here_and_in_another_process(path: Path) -> None:
    engine = opened(path)
    relay = Relay(engine, path, 2)
    with Store(engine) as store:
        session = store.create(owner=ME).id
        largest = 0
        with relay.running(READERS), another_process_reading(path):
            for _ in range(100):
                store.record(session, [m.user("x" * 900_000)], owner=ME)
                relay.written()
                largest = max(largest, size_of_log(path))
    assert largest <= LIMIT_BYTES


def ask_for_a_pause_and_die(path: Path) -> None:
    pause_of(path).request(time.monotonic() + LONGEST_SECONDS)
    die()


def test_a_read_pause_of_a_killed_process_does_not_block_others(path: Path) -> None:
    with open_sqlite(path) as store:
        session = store.create(owner=ME).id
        process = PROCESSES.Process(target=ask_for_a_pause_and_die, args=(path,))
        process.start()
        process.join(PATIENCE)
        assert process.exitcode == -signal.SIGKILL
        assert store.session(session, owner=ME).id == session


def test_a_read_pause_from_before_a_reboot_has_no_effect(path: Path) -> None:
    with open_sqlite(path) as store:
        session = store.create(owner=ME).id
        pause_of(path).request(time.monotonic() + 1_000_000)
        assert store.session(session, owner=ME).id == session


class FullFile:
    """A disk on which one file cannot be written while it is full."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.full = True
        self.refused, self.written = threading.Event(), threading.Event()

    def __call__(self, step: Step) -> None:
        if isinstance(step, Write) and step.file == self._name:
            if self.full:
                self.refused.set()
                raise apsw.FullError("injected: the disk is full")
            self.written.set()


def test_a_log_that_could_not_be_copied_to_a_full_disk_is_copied_when_there_is_room(path: Path) -> None:
    fault = FullFile(path.name)
    fault.full = False
    with Disk(fault) as disk, open_sqlite(path, disk=disk) as store:
        session = store.create(owner=ME).id
        fault.full = True
        while not fault.refused.is_set():
            store.record(session, [m.user("x" * 500_000)], owner=ME)
        fault.written.clear()
        fault.full = False
        # Nothing is written meanwhile: the space of the log is freed nevertheless.
        assert fault.written.wait(PATIENCE)
