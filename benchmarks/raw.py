"""Raw apsw: the yardstick. It plays back the very statements that the store executed, and does nothing else.

How it is built: a database is copied, then verbs run on the original while a tracer writes down every statement with
its parameters, from the PRAGMAs that set up the writer's connection to the last COMMIT. Played back on the copy,
statement by statement, they meet the same rows, ids and positions, write the same bytes and sync at the same moments;
no constraint is broken because everything is exactly what it was. Left out are only the savepoints that keep the jobs
of one batch apart. The yardstick is as good as raw code can be: one thread, parameters ready in memory, statements
cached, no re-planning (QPSG), the log copied back every 1,000 pages as the store does.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

Statement = tuple[str, Any]  # Any: the parameters exactly as apsw was handed them

_OWN_SAVEPOINTS = ("SAVEPOINT", "RELEASE")


class Tape:
    """What connections executed, each in its order."""

    def __init__(self) -> None:
        self._tracks: list[_Track] = []

    def listen(self, connection: apsw.Connection) -> None:
        track = _Track()
        self._tracks.append(track)
        connection.exec_trace = track.note

    def take(self) -> list[Statement]:
        """What the connection that writes has executed since the last time; what others only read is no matter."""
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
    """Write down what connections opened inside the block execute."""
    tape = Tape()
    apsw.connection_hooks.append(tape.listen)
    try:
        yield tape
    finally:
        apsw.connection_hooks.remove(tape.listen)


class Raw:
    """A connection that executes what it is given."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        self.connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)

    def prepare(self, statements: Sequence[Statement]) -> None:
        """Play what set the store's own connection up, then keep the log short as the store does."""
        self.play(statements)
        self.connection.wal_autocheckpoint(1_000)

    def play(self, statements: Sequence[Statement]) -> None:
        """Execute these statements and fetch what they return."""
        execute = self.connection.execute
        for sql, bindings in statements:
            execute(sql, bindings).fetchall()

    def close(self) -> None:
        self.connection.close()
