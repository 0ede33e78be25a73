"""Raw apsw: the reference. It replays exactly the statements that the store executed, and does nothing else.

A database is copied, then verbs run on the original while a tracer records every statement with its parameters, from
the PRAGMAs of the writer's connection to the last COMMIT. Replayed on the copy, statement by statement, they find the
same rows, ids and positions, write the same bytes and sync at the same moments. No constraint is broken, because the
data is the same. Only the savepoints that separate the jobs of one batch are left out. The reference is as fast as raw
code can be: one thread, parameters ready in memory, statements cached, no re-planning (QPSG), and the log copied back
every 1,000 pages as in the store.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

Statement = tuple[str, Any]  # Any: the parameters as they were passed to apsw

_OWN_SAVEPOINTS = ("SAVEPOINT", "RELEASE")


class Tape:
    """The executed statements of each connection, in order."""

    def __init__(self) -> None:
        self._tracks: list[_Track] = []

    def watch(self, connection: apsw.Connection) -> None:
        track = _Track()
        self._tracks.append(track)
        connection.exec_trace = track.note

    def take(self) -> list[Statement]:
        """The statements of the writing connection since the last call; reading connections do not matter."""
        return [statement for track in self._tracks for statement in track.take() if track.writes]


class _Track:
    def __init__(self) -> None:
        self.writes = False
        self._statements: list[Statement] = []

    def note(self, cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        self.writes = self.writes or sql.startswith("BEGIN IMMEDIATE")
        if not sql.startswith(_OWN_SAVEPOINTS):
            self._statements.append((sql, bindings))
        return True

    def take(self) -> list[Statement]:
        taken, self._statements = self._statements, []
        return taken


@contextmanager
def recording() -> Iterator[Tape]:
    """Record the statements of connections opened inside the block."""
    tape = Tape()
    apsw.connection_hooks.append(tape.watch)
    try:
        yield tape
    finally:
        apsw.connection_hooks.remove(tape.watch)


class Raw:
    """A connection that executes the given statements."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        self.connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)

    def prepare(self, statements: Sequence[Statement]) -> None:
        """Run the set-up of the store's own connection, then keep the log short as the store does."""
        self.play(statements)
        self.connection.wal_autocheckpoint(1_000)

    def play(self, statements: Sequence[Statement]) -> None:
        """Execute these statements and fetch their rows."""
        execute = self.connection.execute
        for sql, bindings in statements:
            execute(sql, bindings).fetchall()

    def close(self) -> None:
        self.connection.close()
