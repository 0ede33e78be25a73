"""Retries while the process has too few file descriptors left: it may have more in a moment."""

import errno
import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from backstay.errors import StoreFull, StoreUnavailable

T = TypeVar("T")

_AGAIN_SECONDS = 0.05
_SCARCE = (errno.EMFILE, errno.ENFILE)
# More than opening a store needs at once. An attempt that failed has closed its files, so some are free again.
_ENOUGH = 16
_HINT = "Close some files, or raise the limit (ulimit -n)."


def retry_while_scarce(work: Callable[[], T], *, seconds: float, location: str) -> T:
    """Do the work, and retry for this many seconds while the process has too few file descriptors left.

    Raises:
        StoreUnavailable: There were too few in all that time.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return work()
        except (OSError, StoreUnavailable, StoreFull) as error:
            if not (_names_scarcity(error) or is_scarce()):
                raise
            if time.monotonic() >= deadline:
                raise too_many_files(location) from error
        threading.Event().wait(_AGAIN_SECONDS)


def too_many_files(location: str) -> StoreUnavailable:
    """The error for a store that cannot be opened because the process has too many files open."""
    return StoreUnavailable(
        f"{location} cannot be opened: too many files are open",
        hint=_HINT,
    )


def _names_scarcity(error: BaseException | None) -> bool:
    """Whether there were too few when the error was made, even if some are free again now."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _SCARCE:
            return True
        if isinstance(error, StoreUnavailable) and error.hint == _HINT:
            return True
        error = error.__cause__
    return False


def is_scarce() -> bool:
    """Whether the process has too few file descriptors left: SQLite reports only that it could not open a file."""
    handles: list[int] = []
    try:
        while len(handles) < _ENOUGH:
            handles.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in _SCARCE
    finally:
        for handle in handles:
            os.close(handle)
    return False
