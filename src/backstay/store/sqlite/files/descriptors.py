"""Retries while the process has no file descriptor left: it may have some in a moment."""

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


def retry_while_scarce(work: Callable[[], T], *, seconds: float, location: str) -> T:
    """Do the work, and retry for this many seconds while the process has no file descriptor left.

    Raises:
        StoreUnavailable: There was none in all that time.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return work()
        except (OSError, StoreUnavailable, StoreFull) as error:
            if not (_names_scarcity(error) or _is_scarce()):
                raise
            if time.monotonic() >= deadline:
                raise StoreUnavailable(
                    f"{location} cannot be opened: too many files are open",
                    hint="Close some files, or raise the limit (ulimit -n).",
                ) from error
        threading.Event().wait(_AGAIN_SECONDS)


def _names_scarcity(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, OSError) and error.errno in _SCARCE:
            return True
        error = error.__cause__
    return False


def _is_scarce() -> bool:
    """Whether no file can be opened now: SQLite reports only that it could not open one."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in _SCARCE
    return False
