"""Hints: notify other processes of a commit at once, and receive theirs. A process that misses one polls.

A hint is never sent in the transaction that it announces: inside, NOTIFY holds a lock of the whole server until the
disk has answered, and commits would be serialised. So it is sent afterwards, by a thread of its own:
no caller waits for it.
"""

import threading
import time
from collections.abc import Callable

import psycopg

from backstay.errors import BackstayError
from backstay.store.postgres.connection import ServerConnection
from backstay.store.postgres.database import PostgresDatabase

# The minimum interval between two hints of a process. Every hint wakes all processes, so with many writers the interval
# grows. Together they wake the others about `WAKE_UPS` times per second; the more writers, the more polling.
SPACING, WIDEST = 0.01, 5.0
WAKE_UPS = 2_000
REMEMBERED = 60.0
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0

# A channel of this store only: other databases do not receive it, other schemas of this one do not listen to it.
_CHANNEL = "SELECT CAST(CAST('keys' AS regclass) AS oid)"


class Hints:
    """Sends hints for one worker, and calls `on_hint` from its own thread when another worker has sent one."""

    def __init__(self, database: PostgresDatabase, name: str, on_hint: Callable[[], None]) -> None:
        self._database, self._name, self._on_hint = database, name, on_hint
        self._committed, self._closed = threading.Event(), threading.Event()
        self._line: ServerConnection | None = None
        self._others: dict[str, float] = {}
        for work in (self._send, self._receive):
            threading.Thread(target=work, name="backstay-hints", daemon=True).start()

    def committed(self) -> None:
        """Send a hint, because this worker has committed."""
        self._committed.set()

    def close(self) -> None:
        """Stop sending and receiving."""
        self._closed.set()
        self._committed.set()
        if self._line is not None:
            self._line.close_socket()

    # --- sending ----------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        while self._committed.wait() and not self._closed.is_set():
            self._committed.clear()
            # Without a connection to receive hints, the number of other workers is unknown.
            if self._line is not None:
                self._database.hint(self._name)
            self._closed.wait(self._spacing())

    def _spacing(self) -> float:
        lately = time.monotonic() - REMEMBERED
        self._others = {name: at for name, at in self._others.copy().items() if at > lately}
        return min(max(SPACING, (len(self._others) + 1) ** 2 / WAKE_UPS), WIDEST)

    # --- receiving -------------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        """Receive hints until closed.

        A lost connection is made again; until then, and behind a pooler, the caller polls.
        """
        pause = FIRST_PAUSE
        while not self._closed.is_set():
            try:
                with self._database.connect() as line:
                    if not line.direct:
                        return  # LISTEN would belong to the server process that the pooler lent us.
                    self._follow(line)
            except (psycopg.Error, BackstayError):
                pause = FIRST_PAUSE if self._line is not None else min(pause * 2, LONGEST_PAUSE)
            self._line = None
            self._closed.wait(pause)

    def _follow(self, line: ServerConnection) -> None:
        row = line.execute(_CHANNEL).fetchone()
        line.execute(f"LISTEN backstay_{row[0] if row else 0}".encode())
        self._line = line
        # There may have been commits before we listened.
        self._on_hint()
        if self._closed.is_set():
            return
        for hint in line.notifies():
            if hint.payload != self._name:
                self._others[hint.payload] = time.monotonic()
                self._on_hint()
