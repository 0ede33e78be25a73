"""The lock files beside a database: a fault in one of them changes no result, and ends by itself."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw
import pytest

from backstay import Store
from backstay.errors import StoreUnavailable
from backstay.model.ids import SessionId
from backstay.store.sqlite.files.file_locks import LifeLock, lives, lock_at_once, sweep
from tests.crash.worker_processes import PATIENCE, WorkerProcesses, open_files
from tests.open_sqlite import open_sqlite
from tests.simulated_disk import Disk, Step, Sync
from tests.touching import touch, touching

ME = "me"


class UnlockFault:
    """Once armed, replaces the handle of the write lock by one that cannot be unlocked, in the middle of a commit."""

    def __init__(self, path: Path) -> None:
        self._lock = Path(f"{path}.locks/write")
        self._armed = False
        self.struck = 0

    def arm(self) -> None:
        self._armed = True

    def __call__(self, step: Step) -> None:
        if self._armed and isinstance(step, Sync):
            self._armed = False
            self.struck += 1
            useless = os.open(self._lock, os.O_PATH | os.O_CLOEXEC)
            for handle in handles_on(self._lock) - {useless}:
                os.dup2(useless, handle, inheritable=False)
            os.close(useless)


def handles_on(path: Path) -> set[int]:
    """The descriptors of this process that lead to the file."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if entry.readlink() == path:
                found.add(int(entry.name))
        except FileNotFoundError:
            continue  # The one with which the folder was listed.
    return found


def touch_in_process(rank: int, path: Path, session: SessionId) -> int:
    with open_sqlite(path) as store:
        return touch(store, session, owner=ME).activity


@contextmanager
def faulty(path: Path) -> Iterator[tuple[Store, UnlockFault]]:
    fault = UnlockFault(path)
    with Disk(fault) as disk, open_sqlite(path, disk=disk) as store:
        yield store, fault


def alone(store: Store, session: SessionId) -> int:
    """Write on this thread."""
    return touch(store, session, owner=ME).activity


def queued(store: Store, session: SessionId) -> int:
    """Write on the writer's thread."""
    done = threading.Event()
    pending = store.start(touching(session, owner=ME), done.set)
    assert done.wait(PATIENCE)
    return pending.result().activity


@pytest.mark.parametrize("write", [alone, queued])
def test_a_committed_write_is_acknowledged_though_its_lock_cannot_be_released(
    path: Path, other: WorkerProcesses, write: Callable[[Store, SessionId], int]
) -> None:
    with faulty(path) as (store, fault):
        session = store.create(owner=ME).id
        for count in (1, 3):
            fault.arm()
            assert write(store, session) == count
            # The lock is free nevertheless: another process writes at once.
            assert other.all(touch_in_process, path, session) == [count + 1]
        assert fault.struck == 2


def life_locks(path: Path) -> list[str]:
    return [lock.name for lock in Path(f"{path}.locks").glob("wrk_*")]


def test_a_store_whose_lock_folder_fails_closes_and_leaves_nothing_behind(path: Path, tmp_path: Path) -> None:
    locks, elsewhere = Path(f"{path}.locks"), tmp_path / "elsewhere"
    with open_sqlite(path) as store:
        store.submit(store.create(owner=ME).id, "hello", owner=ME, start=True)
        locks.rename(elsewhere)
        locks.touch()  # Every path below it fails with ENOTDIR.
    locks.unlink()
    elsewhere.rename(locks)
    assert life_locks(path) != []

    with open_sqlite(path) as store:
        store.collect()
        assert life_locks(path) == []


def test_a_store_whose_folder_cannot_be_reached_closes_and_leaves_nothing_open(path: Path, tmp_path: Path) -> None:
    store = open_sqlite(path)
    session = store.create(owner=ME).id
    path.parent.rename(tmp_path / "elsewhere")
    path.parent.symlink_to(path.parent)  # Every path below it fails with ELOOP.

    store.close()

    assert open_files(tmp_path) == []
    with open_sqlite(tmp_path / "elsewhere" / path.name) as store:
        assert touch(store, session, owner=ME).activity == 1


def take_and_release(rank: int, folder: Path, rounds: int) -> int:
    """Take life locks while others sweep; returns how many of them were seen as dead."""
    dead = 0
    for number in range(rounds):
        lock = LifeLock(folder / f"wrk_{rank}_{number}")
        sweep(folder, keep=())
        dead += not lives(folder / f"wrk_{rank}_{number}")
        lock.release(remove=True)
    return dead


def test_a_sweep_never_takes_the_lock_of_a_worker_that_is_just_starting(tmp_path: Path) -> None:
    with WorkerProcesses(3) as workers:
        assert workers.all(take_and_release, tmp_path, 300) == [0, 0, 0]
    assert list(tmp_path.iterdir()) == []


class LockFaults(Disk):
    """A disk on which the n-th lock or unlock that SQLite makes fails; 0 is none."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 0

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _FaultyFile(self, name, flags)

    def strike(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise apsw.IOError("injected: no locks available")


class _FaultyFile(apsw.VFSFile):
    def __init__(self, disk: LockFaults, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        super().__init__(disk.base, name, flags)

    def xLock(self, level: int) -> None:  # noqa: N802
        self._disk.strike()
        super().xLock(level)

    def xUnlock(self, level: int) -> None:  # noqa: N802
        self._disk.strike()
        super().xUnlock(level)

    def excepthook(self, *_: object) -> bool:
        return True  # An unlock fails without a caller.


def test_a_lock_of_sqlite_that_fails_once_leaves_no_store_locked(path: Path, other: WorkerProcesses) -> None:
    open_sqlite(path).close()
    with LockFaults() as disk:
        for number in range(1, 11):
            disk.left = number
            with suppress(StoreUnavailable), open_sqlite(path, disk=disk) as store:
                store.create(owner=ME)
            disk.left = 0
            with open_sqlite(path, disk=disk) as store:
                store.create(owner=ME)
        with open_sqlite(path, disk=disk) as store:
            session = store.create(owner=ME).id
            assert other.all(touch_in_process, path, session) == [1]


def test_a_lock_that_the_system_refuses_is_our_error_and_its_handle_is_closed(tmp_path: Path) -> None:
    # `flock` refuses a handle without any right; it does the same where a system has no more locks.
    file = tmp_path / "write"
    file.touch()
    useless = os.open(file, os.O_PATH | os.O_CLOEXEC)

    with pytest.raises(StoreUnavailable, match="cannot be used"):
        lock_at_once(useless, file)

    assert handles_on(file) == set()
