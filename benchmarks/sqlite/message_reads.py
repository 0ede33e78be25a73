"""The cost of reading: 1,000 messages as values, and a revision, against raw apsw fetching the same rows."""

from collections.abc import Iterator
from pathlib import Path

import apsw

from backstay import Store, open_store
from backstay.model.ids import SessionId
from benchmarks.instruments.figure import Figure
from benchmarks.instruments.sample_turns import OWNER, run_turns
from benchmarks.instruments.scratch_folders import in_memory
from benchmarks.instruments.stopwatch import compare

MESSAGES = 1_000

_ROWS = """
SELECT position, id, turn_id, role, partial, format, body, at FROM messages
WHERE window_id = (SELECT window_id FROM sessions WHERE id = ?) ORDER BY position
"""
_REVISION = "SELECT revision FROM sessions WHERE id = ?"


def figures() -> Iterator[Figure]:
    """Loading a conversation, reading a revision."""
    with in_memory() as folder, open_store(folder / "loading.db") as store:
        session = store.create(owner=OWNER).id
        run_turns(store, session, MESSAGES // 2)
        raw = _reader(folder / "loading.db")
        try:
            yield _load(store, session, raw)
            yield _revision(store, session, raw)
        finally:
            raw.close()


def _reader(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return connection


def _load(store: Store, session: SessionId, raw: apsw.Connection) -> Figure:
    if len(store.messages(session, owner=OWNER).messages) != len(raw.execute(_ROWS, (session,)).fetchall()):
        raise RuntimeError("raw apsw does not fetch the rows that the store reads")
    both = compare(
        lambda: [store.messages(session, owner=OWNER) for _ in range(5)],
        lambda: [raw.execute(_ROWS, (session,)).fetchall() for _ in range(5)],
        rounds=40,
        units=5,
    )
    return Figure(name=f"load of {MESSAGES:,} messages as values", value=both.ratio, limit=2, detail=both.detail())


def _revision(store: Store, session: SessionId, raw: apsw.Connection) -> Figure:
    both = compare(
        lambda: [store.revision(session, owner=OWNER) for _ in range(500)],
        lambda: [raw.execute(_REVISION, (session,)).fetchone() for _ in range(500)],
        rounds=60,
        units=500,
    )
    return Figure(name="revision", value=both.ratio, limit=3, detail=both.detail())
