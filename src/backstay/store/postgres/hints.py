"""Hints: others learn at once that something was committed, and we learn it of them. Whoever misses one polls.

A hint never belongs to the transaction it tells of: inside, NOTIFY holds a lock of the whole server until the disk has
answered, and commits would follow each other one by one. So it is sent afterwards, by a thread that nobody waits for.
"""

import threading
import time
from collections.abc import Callable

import psycopg

from backstay.errors import BackstayError
from backstay.store.postgres.database import Database
from backstay.store.postgres.wire import Wire

# However much is written, so much time is between two hints of a process. Every hint wakes everybody, so with many who
# write it is more: together they wake others about so often in a second, and the more they are the more is polled.
SPACING, WIDEST = 0.01, 5.0
WAKE_UPS = 2_000
REMEMBERED = 60.0
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0

# A channel of this store's own: other databases do not hear it, other schemas of this one do not listen to it.
_CHANNEL = "SELECT CAST(CAST('keys' AS regclass) AS oid)"


class Hints:
    """Sends hints for one worker, and calls `heard` from a thread of its own when somebody else has sent one."""

    def __init__(self, database: Database, name: str, heard: Callable[[], None]) -> None:
        self._database, self._name, self._heard = database, name, heard
        self._committed, self._closed = threading.Event(), threading.Event()
        self._line: Wire | None = None
        self._others: dict[str, float] = {}
        for work in (self._send, self._listen):
            threading.Thread(target=work, name="backstay-hints", daemon=True).start()

    def committed(self) -> None:
        """We have committed something; others shall hear of it."""
        self._committed.set()

    def close(self) -> None:
        """Send and hear no more."""
        self._closed.set()
        self._committed.set()
        if self._line is not None:
            self._line.hang_up()

    # --- sending ----------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        while self._committed.wait() and not self._closed.is_set():
            self._committed.clear()
            # Who cannot hear others does not know how many there are.
            if self._line is not None:
                self._database.hint(self._name)
            self._closed.wait(self._spacing())

    def _spacing(self) -> float:
        lately = time.monotonic() - REMEMBERED
        self._others = {name: heard for name, heard in self._others.copy().items() if heard > lately}
        return min(max(SPACING, (len(self._others) + 1) ** 2 / WAKE_UPS), WIDEST)

    # --- hearing ----------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Until we are closed. A line that was lost is made again; until then, and behind a pooler, we poll."""
        pause = FIRST_PAUSE
        while not self._closed.is_set():
            try:
                with self._database.connect() as line:
                    if not line.keeps_statements:
                        return  # What listens there is not us but whatever process the pooler gave us for a moment.
                    self._follow(line)
            except (psycopg.Error, BackstayError):
                pause = FIRST_PAUSE if self._line is not None else min(pause * 2, LONGEST_PAUSE)
            self._line = None
            self._closed.wait(pause)

    def _follow(self, line: Wire) -> None:
        row = line.execute(_CHANNEL).fetchone()
        line.execute(f"LISTEN backstay_{row[0] if row else 0}".encode())
        self._line = line
        # Nobody told us what happened before we listened.
        self._heard()
        if self._closed.is_set():
            return
        for hint in line.notifies():
            if hint.payload != self._name:
                self._others[hint.payload] = time.monotonic()
                self._heard()
