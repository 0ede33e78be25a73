"""The files of an open database, and whether their names still refer to them.

SQLite continues to write into a file or log that was deleted or moved, and a process that opens the database later
finds other files. This module never opens the files for reading or writing: closing such a handle would release
SQLite's locks.
"""

import fcntl
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from backstay.errors import StoreError, StoreReplaced, StoreUnavailable
from backstay.store.sqlite.files.file_locks import WriteLock, close_handle, lock_at_once, open_handle
from backstay.store.sqlite.files.file_system import FileIdentity, identity

# The interval between two checks of all names: a check costs as much as a short read.
LOOK_SECONDS = 0.01
# Opens a handle that can count the names of a file, and neither reads nor locks it. Only Linux has it.
_O_PATH: int | None = getattr(os, "O_PATH", None)


class _Named(NamedTuple):
    name: str
    file: FileIdentity


class _Handle(NamedTuple):
    name: str
    handle: int


class OpenFiles:
    """The database, its log, the log's index and the write lock, as they were when the database was opened.

    Created once the log is open. From then on the anchor of the database keeps log and index in place.
    """

    def __init__(self, path: Path, file: FileIdentity, lock: WriteLock) -> None:
        self._path, self._lock = path, lock
        self._looked = 0.0
        beside = [*_data_files(path), str(lock.path)]
        self._named = [_Named(name, _identity(name)) for name in beside]
        if self._named[0].file != file:
            raise _replaced(str(path))
        self._use = open_handle(_use_of(lock))
        lock_at_once(self._use, lock.path, fcntl.LOCK_SH)
        self._handles = _handles(beside)
        lock.note(self._inodes)

    @property
    def _inodes(self) -> tuple[int, ...]:
        return tuple(named.file.inode for named in self._named[:-1])

    def refuse_replaced(self) -> None:
        """Raise if a name refers to another file than the one that was opened, or to none.

        Called before every write. A file that was deleted or replaced has no name left, which its handle shows fastest.
        That only the log, its index or the lock was moved is noticed a moment later.
        """
        now = time.monotonic()
        if not self._handles or now - self._looked >= LOOK_SECONDS:
            self._refuse_other(self._named)
            self._looked = now
        else:
            self._refuse_other(self._named[:1])
            self._refuse_nameless(self._handles[1:])

    def refuse_replaced_lately(self) -> None:
        """The same for readers, which check only now and then."""
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            self.refuse_replaced()

    def refuse_unlinked(self) -> None:
        """Raise if the database or its log has no name any more: a write that was just made there is lost.

        A file that was moved still has a name. Such a write is stored, and the next one is rejected.
        """
        if self._handles:
            self._refuse_nameless(self._handles[:2])
        else:
            self._refuse_other(self._named)

    def _refuse_other(self, named: Sequence[_Named]) -> None:
        for name, file in named:
            try:
                # Not through a link: another process would look for the log beside the file that it leads to.
                found = os.lstat(name)
                same = (found.st_dev, found.st_ino) == file
            except OSError:
                same = False
            if not same:
                self._looked = 0.0  # The next check looks at everything, too.
                raise _replaced(name)

    def _refuse_nameless(self, handles: Sequence[_Handle]) -> None:
        for name, handle in handles:
            try:
                names = os.fstat(handle).st_nlink
            except OSError as error:
                # Another thread has just closed the database.
                raise StoreUnavailable(f"{self._path} is closed", hint="Open the store again.") from error
            if names == 0:
                self._looked = 0.0
                raise _replaced(name)

    def may_copy_log(self) -> bool:
        """Whether the log may still be copied into the database, even if the log has no name any more.

        Not if another process has opened the database with another log or index since: it would read a mixture of both,
        or lose its own writes. Such a process records its files in the write lock, and creates that lock if it is not
        there.
        """
        database, lock = self._named[0], self._named[-1]
        try:
            found = identity(Path(lock.name))
            alone = found is None or (found == lock.file and self._lock.noted() == self._inodes)
            return alone and identity(self._path) == database.file and not _opened_by_another_name(self._path)
        except (StoreError, OSError):
            return False  # It cannot be known. The log stays as it is.

    def may_copy_log_unlocked(self) -> bool:
        """The same for a process that could not take the write lock: no process holds it if its file was deleted."""
        try:
            return identity(self._lock.path) is None and self.may_copy_log()
        except StoreError:
            return False

    def end_use(self) -> None:
        """Let other processes open the database with another log. From here on nothing is written here."""
        close_handle(self._use)

    def close(self) -> None:
        """Close the handles."""
        handles, self._handles = self._handles, []
        for _, handle in handles:
            close_handle(handle)


def refuse_lost_log(path: Path, lock: WriteLock) -> None:
    """Raise if another process has the database open with a log or index that was moved, deleted or replaced since.

    That process still has acknowledged writes in its log. It copies them into the database when it notices, or when it
    closes; opening the database with another log before that would lose them. The caller holds the write lock.
    """
    found = tuple(file.inode if (file := identity(Path(name))) else 0 for name in _data_files(path))
    noted = lock.noted()
    if noted[:1] != found[:1] or noted == found or not _in_use(_use_of(lock)):
        return
    raise StoreReplaced(
        f"the log or index of {path} was moved, deleted or replaced while another process had it open",
        hint="Stop or restart that process first: it saves the writes of the lost log. Then try again.",
    )


def _opened_by_another_name(path: Path) -> bool:
    """Whether the path became a link, and a process opened the file that it leads to: it has a log of its own."""
    real = path.resolve()
    return real != path and any(Path(f"{real}{ending}").exists() for ending in ("-wal", ".locks"))


def _in_use(use: Path) -> bool:
    handle = open_handle(use)
    free = lock_at_once(handle, use)
    close_handle(handle)
    return not free


def _data_files(path: Path) -> tuple[str, str, str]:
    return str(path), f"{path}-wal", f"{path}-shm"


def _use_of(lock: WriteLock) -> Path:
    """The file on which every process that has the database open holds a shared lock."""
    return lock.path.with_name("use")


def _identity(name: str) -> FileIdentity:
    found = identity(Path(name))
    if found is None:
        raise _replaced(name)
    return found


def _handles(names: Sequence[str]) -> list[_Handle]:
    """Handles that count the names of these files; none if the system or the file system cannot count them."""
    if _O_PATH is None:
        return []
    handles: list[_Handle] = []
    try:
        handles.extend(_Handle(name, os.open(name, _O_PATH | os.O_CLOEXEC)) for name in names)
        if all(os.fstat(handle).st_nlink for _, handle in handles):
            return handles
    except OSError:
        pass  # The names are checked instead.
    for _, handle in handles:
        close_handle(handle)
    return []


def _replaced(name: str) -> StoreReplaced:
    return StoreReplaced(f"{name} was moved, deleted or replaced while it was open")
