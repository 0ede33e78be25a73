"""The checkpointer copies the write-ahead log back into the file, and keeps the log small while others read."""

import time

import apsw

from backstay.store.sqlite.connection import BUSY_MS
from backstay.store.sqlite.files.read_pause import LONGEST_SECONDS, ReadPause

# At `CHECKPOINT_PAGES` the log is copied, and no caller waits for that. At `RESTART_PAGES` it must start again from its
# beginning; readers may have to wait.
CHECKPOINT_PAGES = 1_000
RESTART_PAGES = 4_000
# The maximum size of the log while reads overlap, if none of them lasts longer than a pause. A single larger write or a
# longer read makes it larger for a while.
LIMIT_BYTES = 64 * 1024 * 1024

# How long writers wait for the readers of the log, each time, and how long they continue between two such waits.
_HOLD_MS = 20
_BETWEEN_SECONDS = 0.01
# After a pause that was too short, no other one is requested for this time.
_BACKOFF_SECONDS = 10 * LONGEST_SECONDS
# A failed checkpoint, for example on a full disk, is repeated after this time, then with growing delays.
_SHORTEST_RETRY, _LONGEST_RETRY = 0.25, 5.0


class Checkpointer:
    """Decides when the log is copied. Used by the thread that has the writer's connection, one at a time.

    A log that was copied completely starts again with the next write, unless a reader still uses it. So beyond
    `RESTART_PAGES` the writer waits a moment for the readers. If they take longer, it continues to write, and
    requests that no new read begins until the others have ended.
    """

    def __init__(self, pause: ReadPause) -> None:
        self._pause = pause
        self._pages = 0
        self._due_at = CHECKPOINT_PAGES
        self._try_at: float | None = None
        self._retry = _SHORTEST_RETRY
        self._pause_ends: float | None = None
        self._backoff_ends = 0.0

    def committed(self, pages: int) -> None:
        """Report that the log has this many pages now."""
        if pages < self._pages:
            self._started_anew()
        self._pages = pages

    def due(self) -> bool:
        """Whether `run` has something to do now."""
        if self._try_at is not None:
            return time.monotonic() >= self._try_at
        return self._pages >= self._due_at

    def seconds_until_due(self) -> float | None:
        """When to call `run` even if nothing is written; None if only a write can make it due."""
        return None if self._try_at is None else max(0.0, self._try_at - time.monotonic())

    def run(self, connection: apsw.Connection) -> None:
        """Copy the log, on the writer's connection and under the write lock."""
        pages, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        if pages < RESTART_PAGES:
            self._settle(pages + CHECKPOINT_PAGES)
        elif _restarted(connection):
            self._started_anew()
        else:
            self._readers_in_the_way(pages)

    def failed(self) -> None:
        """Report that the log could not be copied, for example on a full disk.

        Nothing is lost: the log still has everything.
        """
        self._end_pause()
        self._try_at = time.monotonic() + self._retry
        self._retry = min(self._retry * 2, _LONGEST_RETRY)

    def close(self) -> None:
        """End a pause, so that no reader waits."""
        self._end_pause()
        self._pause.close()

    def _started_anew(self) -> None:
        self._settle(CHECKPOINT_PAGES)
        self._pages, self._backoff_ends = 0, 0.0

    def _settle(self, due_at: int) -> None:
        """Stop waiting until the log has this many pages."""
        self._end_pause()
        self._due_at, self._try_at = due_at, None
        self._retry = _SHORTEST_RETRY

    def _readers_in_the_way(self, pages: int) -> None:
        """Continue, and try again: soon during a pause, otherwise when the log has grown."""
        now = time.monotonic()
        if self._pause_ends is None and now >= self._backoff_ends:
            self._pause_ends = now + LONGEST_SECONDS
            self._pause.request(self._pause_ends)
        if self._pause_ends is None:
            self._settle(pages + CHECKPOINT_PAGES)
        elif now < self._pause_ends:
            self._try_at = now + _BETWEEN_SECONDS
        else:
            self._settle(pages + CHECKPOINT_PAGES)
            self._backoff_ends = now + _BACKOFF_SECONDS

    def _end_pause(self) -> None:
        if self._pause_ends is not None:
            self._pause_ends = None
            self._pause.end()


def _restarted(connection: apsw.Connection) -> bool:
    """Restart the log; False if a reader uses it for longer than a writer may wait."""
    connection.set_busy_timeout(_HOLD_MS)
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
    except apsw.BusyError:
        return False
    finally:
        connection.set_busy_timeout(BUSY_MS)
    return True
