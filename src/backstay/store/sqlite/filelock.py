"""Locks that the kernel drops when their process dies.

`flock` and not POSIX record locks: those do not exclude a second handle of the same process, and closing any handle on
the file drops them all.
"""

import errno
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from backstay.errors import StoreError, StoreReadOnly, StoreUnavailable

YIELD_SECONDS = 0.002


class WriteLock:
    """The turnstile in front of every write transaction, fair between processes.

    SQLite's own wait starves: of six processes one can commit thousands of times while another commits once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = _open(path)
        self._yielded = 0.0

    def __enter__(self) -> None:
        """Wait, however long it takes, until it is this process's turn to write."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        _sign(self._fd)

    def at_once(self) -> bool:
        """Take the lock if it is free; `release` gives it back."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        _sign(self._fd)
        return True

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let the next one in."""
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        # Whoever waits gets to run before this process asks again; now and then is enough for that.
        now = time.monotonic()
        if now - self._yielded > YIELD_SECONDS:
            self._yielded = now
            os.sched_yield()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """The same for a caller who cannot wait for ever: `StoreUnavailable` after so many seconds."""
        waiting = _Waiting(self._path)
        fd = waiting.result(seconds)
        if fd is None:
            raise StoreUnavailable(
                f"{self._path.parent} is locked for longer than {seconds:g} s: {self.holder()} is writing",
                hint="Try again, or look at what that process does.",
            )
        try:
            _sign(fd)
            yield
        finally:
            os.close(fd)

    def holder(self) -> str:
        """Who wrote last or writes now, for an error message."""
        pid = os.pread(self._fd, 10, 0).decode(errors="replace").strip()
        return f"process {pid}" if pid else "another process"

    def close(self) -> None:
        os.close(self._fd)


class _Waiting:
    """Somebody who queues for the write lock on a thread, because a queue in the kernel cannot be left.

    Asking again and again instead would be polite and would starve: the lock is never free while others queue for it.
    """

    def __init__(self, path: Path) -> None:
        self._fd = _open(path)
        self._come = threading.Event()
        self._turn = threading.Lock()
        self._gone = False
        threading.Thread(target=self._queue, name="backstay-lock", daemon=True).start()

    def result(self, seconds: float) -> int | None:
        """The descriptor that holds the lock, or None if it did not come in time; then it is let go when it does."""
        self._come.wait(seconds)
        with self._turn:
            self._gone = not self._come.is_set()
            return None if self._gone else self._fd

    def _queue(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        with self._turn:
            if self._gone:
                os.close(self._fd)
            else:
                self._come.set()


class LifeLock:
    """Held by a worker as long as it lives; anyone can ask whether it still does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = _open(path)
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        """Die in good order."""
        self._path.unlink(missing_ok=True)
        os.close(self._fd)

    def forget(self) -> None:
        """Let go of a handle inherited through a fork; the parent keeps the lock."""
        os.close(self._fd)


def locks_of(database: Path) -> Path:
    """The directory beside a database in which its locks lie, made if it is not there."""
    folder = Path(f"{database}.locks")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _unusable(folder, error) from error
    return folder


@contextmanager
def no_other_writer(database: Path, seconds: float) -> Iterator[None]:
    """Inside the block no other process writes the database; `StoreUnavailable` if that cannot be had in time."""
    lock = WriteLock(locks_of(database) / "write")
    try:
        with lock.within(seconds):
            yield
    finally:
        lock.close()


def lives(path: Path) -> bool:
    """Whether the worker with this life lock is still there. Never a guess: the kernel knows."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _sign(fd: int) -> None:
    """Say who holds the lock, for others' error messages; a disk that cannot take it changes nothing."""
    with suppress(OSError):
        os.pwrite(fd, b"%-10d" % os.getpid(), 0)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, error: OSError) -> StoreError:
    if error.errno == errno.EROFS:
        return StoreReadOnly(f"{path} cannot be created: the file system is read-only")
    return StoreUnavailable(
        f"{path} cannot be used: {error.strerror}", hint="Check the directory, and how many files may be open."
    )
