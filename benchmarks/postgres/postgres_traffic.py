"""Traffic of the clients of a PostgreSQL server: counted, or recorded to be replayed.

Traffic is counted by libpq's own trace: every command that the server completed, and every wait for it. Statements are
recorded where the store puts them into a pipeline.
"""

import ctypes
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import sub
from pathlib import Path
from typing import Any, Self
from weakref import WeakSet

import msgspec
import psycopg
from psycopg.types.numeric import Int8Dumper

from backstay.store.postgres.protocol.pipeline import Pipeline

Statement = tuple[bytes, Sequence[Any]]  # Any: whatever the driver takes
Trip = list[Statement]

_MARK = b"INSERT INTO commits"


class Traffic(msgspec.Struct):
    """The traffic so far."""

    statements: int = 0
    round_trips: int = 0

    def since(self, earlier: "Traffic") -> "Traffic":
        """The traffic since an earlier count."""
        return Traffic(*map(sub, msgspec.structs.astuple(self), msgspec.structs.astuple(earlier)))


@contextmanager
def counting(folder: Path, database: str) -> Iterator[Callable[[], Traffic]]:
    """Count the traffic to one database inside the block. It is slow: do not measure time meanwhile."""
    said = folder / "trace"
    traced: WeakSet[psycopg.Connection[Any]] = WeakSet()
    with said.open("w") as file:

        def observe(cursor: psycopg.Cursor[Any]) -> None:
            if cursor.connection not in traced and cursor.connection.info.dbname == database:
                traced.add(cursor.connection)
                cursor.connection.pgconn.trace(file.fileno())

        with _observed(observe):
            yield lambda: _count(said)


def _count(said: Path) -> Traffic:
    ctypes.CDLL(None).fflush(None)  # the trace is a buffered C stream
    messages = [line.split("\t")[3] for line in said.read_text().splitlines() if line.count("\t") >= 3]
    return Traffic(statements=messages.count("CommandComplete"), round_trips=_round_trips(messages))


def _round_trips(messages: Sequence[str]) -> int:
    """The number of waits for the server: several requests that were sent together are one round trip."""
    trips = unanswered = 0
    for message in messages:
        if message in ("Query", "Sync"):
            unanswered += 1
        elif message == "ReadyForQuery":
            unanswered -= 1
            trips += not unanswered
    return trips


class Tape:
    """The statements that each thread has sent, in groups: one for each wait for the server."""

    def __init__(self) -> None:
        self._waiting: dict[int, Trip] = defaultdict(list)
        self._tracks: dict[int, list[Trip]] = defaultdict(list)

    def note(self, text: bytes, values: Sequence[Any]) -> None:
        self._waiting[threading.get_ident()].append((text, values))

    def cut(self) -> None:
        me = threading.get_ident()
        self._tracks[me].append(self._waiting.pop(me, []))

    def take(self) -> list[Trip]:
        """The statements of this thread since the last call."""
        return self._tracks.pop(threading.get_ident(), [])


@contextmanager
def recording() -> Iterator[Tape]:
    """Record the statements inside the block."""
    tape = Tape()
    queue, flush = Pipeline.queue, Pipeline.flush

    # Any: the arguments and results of a pipeline.
    def observed(self: Pipeline, text: bytes, values: Sequence[Any] = (), **options: Any) -> None:
        queue(self, text, values, **options)
        tape.note(text, values)

    def cut(self: Pipeline) -> Any:
        tape.cut()
        return flush(self)

    Pipeline.queue, Pipeline.flush = observed, cut  # type: ignore[method-assign]  # it stands where the store sends
    try:
        yield tape
    finally:
        Pipeline.queue, Pipeline.flush = queue, flush  # type: ignore[method-assign]  # and goes again


@contextmanager
def _observed(observe: Callable[[psycopg.Cursor[Any]], None]) -> Iterator[None]:
    """Report every cursor that executes: the store checks each new connection in this way."""
    execute = psycopg.Cursor.execute

    # Any: the arguments and results of the driver.
    def observed(self: psycopg.Cursor[Any], query: Any, parameters: Any = None, **options: Any) -> Any:
        observe(self)
        return execute(self, query, parameters, **options)

    psycopg.Cursor.execute = observed  # type: ignore[method-assign, assignment]  # it replaces the method of the driver
    try:
        yield
    finally:
        psycopg.Cursor.execute = execute  # type: ignore[method-assign]  # restored


class RawClient:
    """Raw psycopg: the reference. It replays the statements of the store in the same round trips, and nothing else.

    It has a connection of its own, in psycopg's pipeline mode. Its statements are prepared like the store's and its
    numbers have the same width. Only the mark of a commit is its own: otherwise clients that shared a connection of the
    store's pool would wait for each other here.
    """

    def __init__(self, url: str, name: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        self._connection.adapters.register_dumper(int, Int8Dumper)
        self._connection.adapters.register_dumper(bool, Int8Dumper)
        self._connection.prepared_max = 1_000
        self._cursor = psycopg.RawCursor(self._connection)
        self._mark = (name, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def own(self, turn: list[Trip]) -> list[Trip]:
        """A turn with the statements of this client."""
        return [
            [(text, self._mark if text.lstrip().startswith(_MARK) else values) for text, values in trip]
            for trip in turn
        ]

    def play(self, turn: list[Trip]) -> None:
        """Execute these statements and fetch what the last of each trip returns."""
        cursor = self._cursor
        with self._connection.pipeline() as pipeline:
            for trip in turn:
                for text, values in trip:
                    cursor.execute(text, values)
                pipeline.sync()
                if cursor.description is not None:
                    cursor.fetchall()
