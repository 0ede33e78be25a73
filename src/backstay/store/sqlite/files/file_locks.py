"""Locks that the kernel releases when their process dies.

We use `flock` and not POSIX record locks: those do not exclude a second handle of the same process, and closing any
handle on the file releases them all.
"""

import errno
import fcntl
import os
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from backstay.errors import StoreError, StoreReadOnly, StoreUnavailable

LockState = Literal["alive", "dead", "unknown"]

YIELD_SECONDS = 0.002
_TRIES = 1_000
# The lock file contains the process id of its last holder, then a note: the inodes of the files that writers use.
_PID_BYTES, _NOTE_BYTES = 10, 64


class WriteLock:
    """The lock before every write transaction, fair between processes.

    SQLite's own wait is not fair: of six processes one can commit thousands of times while another commits once.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = open_handle(path)
        self._yielded = 0.0

    def __enter__(self) -> None:
        """Wait without a limit until this process may write."""
        fd = self._handle()
        fcntl.flock(fd, fcntl.LOCK_EX)
        _sign(fd)

    def at_once(self) -> bool:
        """Take the lock if it is free and usable; release it with `release`."""
        try:
            fd = self._handle()
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (OSError, StoreError):
            return False
        _sign(fd)
        return True

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock for the next process. Never raises: a committed batch must not be reported as failed."""
        try:
            fcntl.flock(self._handle(), fcntl.LOCK_UN)
        except (OSError, StoreError):
            self.close()  # Closing the handle releases the lock too; the next writer opens another one.
        # Let a waiting process run before this one takes the lock again; once in a while is enough for that.
        now = time.monotonic()
        if now - self._yielded > YIELD_SECONDS:
            self._yielded = now
            os.sched_yield()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Take the lock inside the block; raise `StoreUnavailable` after this many seconds."""
        waiting = _Waiting(self.path)
        fd = waiting.result(seconds)
        if fd is None:
            raise StoreUnavailable(
                f"{self.path.parent} is locked for longer than {seconds:g} s: {self.holder()} is writing",
                hint="Try again, or check what that process is doing.",
            )
        try:
            _sign(fd)
            yield
        finally:
            close_handle(fd)

    def holder(self) -> str:
        """The process that wrote last or writes now, for an error message."""
        pid = ""
        with suppress(OSError, StoreError):
            pid = os.pread(self._handle(), _PID_BYTES, 0).decode(errors="replace").strip()
        return f"process {pid}" if pid else "another process"

    def note(self, inodes: Sequence[int]) -> None:
        """Record the files that the writers of this lock use, for a process that finds other ones."""
        with suppress(OSError):
            os.pwrite(self._handle(), " ".join(map(str, inodes)).ljust(_NOTE_BYTES).encode(), _PID_BYTES)

    def noted(self) -> tuple[int, ...]:
        """The files that were recorded last; empty if that cannot be read."""
        with suppress(OSError, StoreError, ValueError):
            return tuple(map(int, os.pread(self._handle(), _NOTE_BYTES, _PID_BYTES).split()))
        return ()

    def close(self) -> None:
        """Close the handle, which releases the lock if it is held."""
        fd, self._fd = self._fd, None
        if fd is not None:
            close_handle(fd)

    def _handle(self) -> int:
        if self._fd is None:
            self._fd = open_handle(self.path)
        return self._fd


class _Waiting:
    """Waits for the write lock on a thread, because a wait in the kernel's queue cannot be cancelled.

    Polling instead would never succeed under load: the lock is never free while others are in the queue.
    """

    def __init__(self, path: Path) -> None:
        self._fd = open_handle(path)
        self._acquired = threading.Event()
        self._turn = threading.Lock()
        self._abandoned = False
        # The lock is free most of the time; then no thread is needed.
        if lock_at_once(self._fd, path):
            self._acquired.set()
        else:
            self._wait_on_a_thread(path)

    def _wait_on_a_thread(self, path: Path) -> None:
        try:
            threading.Thread(target=self._queue, name="backstay-lock", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            close_handle(self._fd)
            raise StoreUnavailable(f"{path} is locked, and no thread can wait for it: {error}") from error

    def result(self, seconds: float) -> int | None:
        """The descriptor that holds the lock, or None if it did not come in time; it is then released when it comes."""
        self._acquired.wait(seconds)
        with self._turn:
            self._abandoned = not self._acquired.is_set()
            return None if self._abandoned else self._fd

    def _queue(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError:
            close_handle(self._fd)
            return
        with self._turn:
            if self._abandoned:
                close_handle(self._fd)
            else:
                self._acquired.set()


class LifeLock:
    """Held by a worker as long as it lives; any process can check whether it still does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = _hold(path)

    def release(self, *, remove: bool) -> None:
        """Release the lock on a regular close. A file that stays, or cannot be removed now, is removed by `sweep`."""
        if remove:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
        close_handle(self._fd)

    def forget(self) -> None:
        """Close a handle inherited through a fork; the parent keeps the lock."""
        close_handle(self._fd)


def _hold(path: Path) -> int:
    """A handle that holds the lock on the file with this name; the file is created if needed."""
    for _ in range(_TRIES):
        fd = open_handle(path)
        # Otherwise another process checks whether it is held, or is about to remove it.
        if lock_at_once(fd, path):
            with suppress(OSError):  # It was removed before it was locked.
                if os.path.samestat(os.fstat(fd), path.stat()):
                    return fd
        close_handle(fd)
        os.sched_yield()
    raise StoreUnavailable(f"{path} is locked by another process", hint="Try again.")


def sweep(folder: Path, *, keep: Collection[str]) -> None:
    """Remove the life locks of dead workers. A file that cannot be removed now is left to the next sweep."""
    for path in folder.glob("wrk_*"):
        with suppress(OSError):
            if path.name in keep:
                continue
            _remove_unheld(path)


def _remove_unheld(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Removed under the lock: a worker that opens the file at this moment notices, and creates another one.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    finally:
        close_handle(fd)


def locks_of(database: Path) -> Path:
    """The directory of a database's locks, beside the file; created if needed."""
    folder = Path(f"{database}.locks")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _unusable(folder, error) from error
    return folder


@contextmanager
def no_other_writer(database: Path, seconds: float) -> Iterator[None]:
    """Inside the block no other process writes the database; `StoreUnavailable` if the lock is not free in time."""
    lock = WriteLock(locks_of(database) / "write")
    try:
        with lock.within(seconds):
            yield
    finally:
        lock.close()


def lives(path: Path) -> bool:
    """Whether the worker with this life lock is known to be alive."""
    return lock_state(path) == "alive"


def lock_state(path: Path) -> LockState:
    """Whether the worker with this life lock is alive. The kernel can answer that, unless the lock file was deleted."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return "unknown"
    except OSError as error:
        raise _unusable(path, error) from error
    if not lock_at_once(fd, path, fcntl.LOCK_SH):
        close_handle(fd)
        return "alive"
    close_handle(fd)
    return "dead"


def lock_at_once(fd: int, path: Path, kind: int = fcntl.LOCK_EX) -> bool:
    """Take the lock; False if another handle has it. If the system has none left, the handle is closed."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        close_handle(fd)
        raise _unusable(path, error) from error
    return True


def close_handle(fd: int) -> None:
    """Close a handle. The kernel frees it, and the lock on it, even if it reports an error."""
    with suppress(OSError):
        os.close(fd)


def _sign(fd: int) -> None:
    """Write the process id of the holder for the error messages of others; a failure does not matter."""
    with suppress(OSError):
        os.pwrite(fd, b"%-10d" % os.getpid(), 0)


def open_handle(path: Path) -> int:
    """A handle on a lock file; the file is created if needed."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, error: OSError) -> StoreError:
    if error.errno == errno.EROFS:
        return StoreReadOnly(f"{path} cannot be created: the file system is read-only")
    return StoreUnavailable(
        f"{path} cannot be used: {error.strerror}", hint="Check the directory, and the limit on open files."
    )
