"""The directory in which a program is started. It is opened once, so that the checked directory is the one used."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from backstay.agents.roots import AgentRoots
from backstay.errors import AgentFailed


class Directory(NamedTuple):
    """An open directory and its real path."""

    fd: int
    path: str


@asynccontextmanager
async def open_directory(path: str, roots: AgentRoots) -> AsyncIterator[Directory]:
    """Open the directory, if its real path is under the roots.

    A link that is put in its place after the check has no effect: the program starts in the directory that was opened.

    Raises:
        AgentFailed: It is outside the roots, or is not a directory. The error does not reveal where a link leads, nor
            whether anything exists outside the roots.
    """
    opening = _Opening(path, roots)
    try:
        # On a thread: a directory of a network file system may take long to open.
        directory = await asyncio.to_thread(opening.run)
    except BaseException:
        opening.abandon()
        raise
    try:
        yield directory
    finally:
        os.close(directory.fd)


class _Opening:
    """Opens a directory on a thread. After a cancellation the thread continues, and the later of the two closes it."""

    def __init__(self, path: str, roots: AgentRoots) -> None:
        self._path, self._roots = path, roots
        self._lock = threading.Lock()
        self._opened: Directory | None = None
        self._is_abandoned = False

    def run(self) -> Directory:
        """Open the directory; on the thread."""
        directory = _open(self._path, self._roots)
        with self._lock:
            self._opened = directory
            if self._is_abandoned:
                os.close(directory.fd)
        return directory

    def abandon(self) -> None:
        """Close the directory, now or when it is open: its caller has been cancelled."""
        with self._lock:
            self._is_abandoned = True
            if self._opened is not None:
                os.close(self._opened.fd)


def _open(path: str, roots: AgentRoots) -> Directory:
    if not roots.allow(os.path.realpath(path)):
        raise _outside(path)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise AgentFailed(
            f"the directory of this session, {path}, is not a directory here: {error.strerror}"
        ) from error
    try:
        real = _real_path(fd, path)
    except BaseException:
        os.close(fd)
        raise
    if real is None or not roots.allow(real):
        os.close(fd)
        raise _outside(path)
    return Directory(fd, real)


def _real_path(fd: int, path: str) -> str | None:
    """Return the real path of an open directory; None if it changed meanwhile."""
    if sys.platform == "linux":
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    real = os.path.realpath(path)
    return real if os.path.samestat(Path(real).stat(), os.fstat(fd)) else None


def _outside(path: str) -> AgentFailed:
    return AgentFailed(
        f"the directory of this session, {path}, is outside the directories in which this agent may work",
        hint="Work in a directory below one of them, or add this one to agent_roots (in Python: roots=).",
    )
