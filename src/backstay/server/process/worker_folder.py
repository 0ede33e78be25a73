"""The folder through which the workers of one server share their metrics. It is removed when the server ends."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "backstay-workers-"
_LOCK = "lock"


@contextmanager
def worker_folder() -> Iterator[Path]:
    """A folder that is removed at the end of the block. Folders of servers that were killed are removed first.

    A killed server does not remove its folder, but the kernel releases its lock. The next server recognises the folder
    by that.
    """
    parent = Path(tempfile.gettempdir())
    for found in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            _remove_unheld(found)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        remove(folder)
        os.close(lock)


def remove(folder: Path) -> None:
    """Remove the folder and its files, as far as possible."""
    shutil.rmtree(folder, ignore_errors=True)


def _remove_unheld(folder: Path) -> None:
    """Remove the folder of another server, unless that server is alive or another user owns the folder."""
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        return
    # A folder without a lock file is being created: `open` fails, and the folder stays.
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove(folder)
    finally:
        os.close(lock)
