"""A pause for readers: new reads wait for a moment, in every process, so that the write-ahead log can restart.

SQLite restarts the log only when no reader uses it. While reads overlap, there is always one.
"""

import os
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path

from backstay.store.sqlite.files.file_locks import close_handle, open_handle

# No pause lasts longer, even if the process that requested it dies.
LONGEST_SECONDS = 3.0
_LOOK_SECONDS = 0.002
_DEADLINE = struct.Struct("<d")


class ReadPause:
    """A file with the time until which new reads should wait, on the monotonic clock that all processes share.

    It costs a read one system call. It is a request and not a lock: losing it does no harm, and it expires by itself if
    its process dies.
    """

    def __init__(self, path: Path) -> None:
        self._fd: int | None = open_handle(path)
        self._closed = threading.Event()

    def request(self, deadline: float) -> None:
        """Let no new read begin before `end`, or before this time of the monotonic clock."""
        with suppress(OSError):  # Without it the log can restart only between two reads.
            if self._fd is not None:
                os.pwrite(self._fd, _DEADLINE.pack(deadline), 0)

    def end(self) -> None:
        """Let reads continue."""
        self.request(0.0)

    def wait(self) -> None:
        """Wait until no pause is in effect."""
        while self.lasts():
            self._closed.wait(_LOOK_SECONDS)

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, None
        self._closed.set()
        if fd is not None:
            close_handle(fd)

    def lasts(self) -> bool:
        """Whether new reads should still wait."""
        fd = self._fd
        try:
            written = b"" if fd is None else os.pread(fd, _DEADLINE.size, 0)
        except OSError:
            return False
        if len(written) < _DEADLINE.size:
            return False
        # A deadline that is further away is from before a reboot.
        (deadline,) = _DEADLINE.unpack(written)
        return bool(0 < deadline - time.monotonic() <= LONGEST_SECONDS)
