"""A wiretap: what the clients of a PostgreSQL server say to it, counted on the wire or kept to be said again.

It stands where psycopg executes, so the store is heard as it is, through the public door. What goes over the wire is
counted by libpq's own trace: every command that the server completed, and every time it was waited for.
"""

import ctypes
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from operator import sub
from pathlib import Path
from typing import Any, Self
from weakref import WeakSet

import msgspec
import psycopg
from psycopg.types.numeric import Int8Dumper

Statement = tuple[Any, ...]  # Any: exactly what the driver was handed

_WRITER = re.compile(rb"'wrk_\w+\.\d+', \d+")


class Traffic(msgspec.Struct):
    """What went over the wire so far."""

    statements: int = 0
    round_trips: int = 0

    def since(self, earlier: "Traffic") -> "Traffic":
        """What went over it after the earlier count."""
        return Traffic(*map(sub, msgspec.structs.astuple(self), msgspec.structs.astuple(earlier)))


@contextmanager
def counting(room: Path, database: str) -> Iterator[Callable[[], Traffic]]:
    """Count what is said inside the block to one database. It is slow: nothing may be timed meanwhile."""
    said = room / "trace"
    traced: WeakSet[psycopg.Connection[Any]] = WeakSet()
    with said.open("w") as file:

        def listen(cursor: psycopg.Cursor[Any], _: Statement) -> None:
            if cursor.connection not in traced and cursor.connection.info.dbname == database:
                traced.add(cursor.connection)
                cursor.connection.pgconn.trace(file.fileno())

        with _heard(listen):
            yield lambda: _count(said)


def _count(said: Path) -> Traffic:
    ctypes.CDLL(None).fflush(None)  # the trace is a stream of C's, which keeps what it has until it is full
    answers = [line.split("\t")[3] for line in said.read_text().splitlines() if line.count("\t") >= 3]
    return Traffic(statements=answers.count("CommandComplete"), round_trips=answers.count("ReadyForQuery"))


class Tape:
    """What each thread has executed. What connections prepare for themselves is set apart."""

    def __init__(self) -> None:
        self.prepared: set[bytes] = set()
        self._tracks: dict[int, list[Statement]] = defaultdict(list)

    def note(self, _: psycopg.Cursor[Any], statement: Statement) -> None:
        query = statement[0]
        if isinstance(query, bytes) and query.startswith(b"PREPARE"):
            self.prepared.add(query)
        else:
            self._tracks[threading.get_ident()].append(statement)

    def take(self) -> list[Statement]:
        """What this thread has executed since the last time."""
        return self._tracks.pop(threading.get_ident(), [])


@contextmanager
def recording() -> Iterator[Tape]:
    """Write down what is executed inside the block."""
    tape = Tape()
    with _heard(tape.note):
        yield tape


@contextmanager
def _heard(listen: Callable[[psycopg.Cursor[Any], Statement], None]) -> Iterator[None]:
    execute = psycopg.Cursor.execute

    # Any: what the driver takes and gives, whatever it is.
    def heard(self: psycopg.Cursor[Any], query: Any, parameters: Any = None, **options: Any) -> Any:
        listen(self, (query, dict(parameters) if isinstance(parameters, dict) else parameters))
        return execute(self, query, parameters, **options)

    psycopg.Cursor.execute = heard  # type: ignore[method-assign, assignment]  # it stands where the driver executes
    try:
        yield
    finally:
        psycopg.Cursor.execute = execute  # type: ignore[method-assign]  # and goes again


class RawClient:
    """Raw psycopg: the yardstick. It says again what the store said, on a connection of its own, and nothing else.

    Its statements are prepared like the store's and its numbers have the same width. Only the mark of a commit is its
    own: otherwise clients that shared a connection of the store's pool would wait for each other here.
    """

    def __init__(self, url: str, name: str, prepared: Collection[bytes]) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.adapters.register_dumper(int, Int8Dumper)
        self._connection.adapters.register_dumper(bool, Int8Dumper)
        self._connection.prepared_max = 500
        self._cursor = self._connection.cursor()
        for statement in prepared:
            self._cursor.execute(statement)
        self._mark = f"'{name}', 1".encode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def own(self, turn: list[Statement]) -> list[Statement]:
        """A turn as this client says it."""
        return [
            (_WRITER.sub(self._mark, query), parameters) if isinstance(query, bytes) else (query, parameters)
            for query, parameters in turn
        ]

    def play(self, turn: list[Statement]) -> None:
        """Execute these statements and fetch what the last of each returns."""
        cursor = self._cursor
        for query, parameters in turn:
            cursor.execute(query, parameters)
            while cursor.nextset():
                pass
            if cursor.description is not None:
                cursor.fetchall()
