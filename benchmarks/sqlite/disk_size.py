"""The size of a conversation on disk, including the search index, and its distribution over tables."""

from collections.abc import Iterator
from pathlib import Path

import apsw

from backstay import Store, Text, open_store
from backstay.model.turn import Completed
from backstay.testing import ManualClock
from benchmarks.instruments.corpus import NAME, Exchange, conversations
from benchmarks.instruments.figure import Figure
from benchmarks.instruments.sample_turns import OWNER
from benchmarks.instruments.scratch_folders import in_memory

SESSIONS = 60
_DELTA = 150
_HOUR = 3_600

_PAGES = """
SELECT name, sum(pgsize) FROM dbstat WHERE aggregate = TRUE GROUP BY name ORDER BY sum(pgsize) DESC
"""


def figures() -> Iterator[Figure]:
    """Bytes of the file per byte of text, then table by table."""
    with in_memory() as folder:
        path = folder / "size.db"
        turns, payload = _fill(path)
        size = path.stat().st_size
        detail = f"{size / turns:,.0f} bytes for {payload / turns:,.0f} said per turn, {turns:,} turns of {NAME!r}"
        yield Figure(name="bytes on disk per turn / text", value=size / payload, limit=2.5, detail=detail)
        for name, taken in _breakdown(path, size):
            if taken >= size / 200:
                detail = f"{taken / turns:,.0f} bytes per turn, {taken / size:.0%} of the file"
                yield Figure(name=f"  {name}", value=taken / payload, detail=detail)


def _fill(path: Path) -> tuple[int, int]:
    """Stream the corpus, with maintenance once an hour. Returns the number of turns and of bytes of text."""
    turns = payload = 0
    clock = ManualClock()
    with open_store(path, clock=clock) as store:
        for exchanges in conversations(SESSIONS):
            _stream(store, clock, exchanges)
            turns += len(exchanges)
            payload += sum(exchange.payload for exchange in exchanges)
            clock.advance(_HOUR)
            store.fold()
            store.index()
    return turns, payload


def _stream(store: Store, clock: ManualClock, exchanges: list[Exchange]) -> None:
    session = store.create(owner=OWNER).id
    for question, answer in exchanges:
        turn = store.submit(session, question, owner=OWNER, start=True).opened
        for at in range(0, len(answer), _DELTA):
            if turn is not None:
                turn = store.checkpoint(turn, [Text(answer[at : at + _DELTA])]).open
            clock.advance(0.05)
        if turn is not None:
            store.finish(turn, Completed())


def _breakdown(path: Path, size: int) -> Iterator[tuple[str, int]]:
    """The bytes of every table and index, and of free pages."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        found = [(str(name), int(taken)) for name, taken in connection.execute(_PAGES)]
    finally:
        connection.close()
    yield from found
    yield "free pages", size - sum(taken for _, taken in found)
