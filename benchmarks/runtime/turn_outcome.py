"""A whole turn, from `send` to its outcome, against hand-written SQL with the same two syncs; one session and many."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import apsw

from backstay import Timing
from backstay.runtime.session_handle import Session
from benchmarks.instruments.figure import Figure
from benchmarks.instruments.prepared_databases import session_of
from benchmarks.instruments.sample_turns import ANSWER, QUESTION
from benchmarks.instruments.scratch_folders import copy, on_disk
from benchmarks.instruments.stopwatch import micros, paired
from benchmarks.runtime.stepped_app import SteppedApp, answering_with, ask, stepped_app

HISTORIES = (100, 1_000, 10_000)
SESSIONS = 64
_TURNS, _ROUNDS = 20, 15

_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE sessions (id INTEGER PRIMARY KEY, length INTEGER NOT NULL);
CREATE TABLE messages (session INTEGER, position INTEGER, role TEXT, body TEXT, PRIMARY KEY (session, position));
"""
_ADD = "INSERT INTO messages SELECT id, length, ?, ? FROM sessions WHERE id = ?"
_GROW = "UPDATE sessions SET length = length + 1 WHERE id = ?"


def figures() -> Iterator[Figure]:
    """Wall time and processor time of one turn at several lengths, then turns per second of many sessions."""
    with on_disk() as folder:
        floor = _Floor(folder / "floor.db")
        times = {length: _turns(folder, floor, length) for length in HISTORIES}
        for length, (ratio, detail, _) in times.items():
            name = f"send to outcome at {length:,} messages / two syncs"
            yield Figure(name=name, value=ratio, limit=2.5, detail=detail)
        for length, (_, _, processor) in times.items():
            name = f"processor time of a turn at {length:,} messages"
            yield Figure(name=name, value=processor * 1e3, unit="ms", limit=1.0)
        growth = times[HISTORIES[-1]][2] / times[HISTORIES[0]][2]
        yield Figure(name="the same at 10,000 / at 100 messages", value=growth, limit=1.1)
        yield from _many(folder, floor)
        floor.close()


class _Floor:
    """The least that a durable turn can cost: the question in one transaction, the answer in another."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path))
        self._connection.execute(_SCHEMA).fetchall()
        for session in range(SESSIONS):
            self._connection.execute("INSERT INTO sessions VALUES (?, 0)", (session,))

    def turns(self, sessions: int) -> float:
        """Seconds for this number of turns of this number of sessions, which share their commits."""
        began = time.perf_counter()
        for _ in range(_TURNS):
            for role, text in (("user", QUESTION), ("assistant", ANSWER)):
                self._connection.execute("BEGIN IMMEDIATE")
                for session in range(sessions):
                    self._connection.execute(_ADD, (role, text, session))
                    self._connection.execute(_GROW, (session,))
                self._connection.execute("COMMIT")
        return time.perf_counter() - began

    def close(self) -> None:
        self._connection.close()


def _turns(folder: Path, floor: _Floor, length: int) -> tuple[float, str, float]:
    """One session of this length: the ratio of wall time, its detail, and the processor time of a turn."""
    prepared = session_of(folder, length)
    spent: list[float] = []
    with stepped_app(copy(prepared.path, folder / f"turns-{length}.db"), answering_with([ANSWER]), Timing()) as stepped:
        session = stepped.do(stepped.app.session(prepared.session))
        stepped.do(ask(session))

        def ours() -> float:
            began, used = time.perf_counter(), time.process_time()
            stepped.do(_row_of_turns(session))
            spent.append((time.process_time() - used) / _TURNS)
            return time.perf_counter() - began

        both = paired(ours, lambda: floor.turns(1), rounds=_ROUNDS).per(_TURNS)
    return both.ratio, both.detail("ours", "two syncs"), median(spent)


async def _row_of_turns(session: Session) -> None:
    for _ in range(_TURNS):
        await ask(session)


def _many(folder: Path, floor: _Floor) -> Iterator[Figure]:
    """Many sessions at once: turns per second, against a raw group commit with two syncs."""
    with stepped_app(folder / "many.db", answering_with([ANSWER]), Timing()) as stepped:
        sessions = [stepped.do(stepped.app.session()) for _ in range(SESSIONS)]
        stepped.do(_in_each(sessions))
        both = paired(lambda: _timed(stepped, sessions), lambda: floor.turns(SESSIONS), rounds=_ROUNDS)
    rate = SESSIONS * _TURNS / both.ours
    detail = f"{rate:,.0f} turns/s; a raw group commit {SESSIONS * _TURNS / both.raw:,.0f}"
    yield Figure(name=f"{SESSIONS} sessions at once / raw group commit", value=both.ratio, limit=2, detail=detail)
    each = micros(both.ours / SESSIONS / _TURNS)
    yield Figure(name=f"turns/s, {SESSIONS} sessions at once", value=rate, unit="/s", detail=f"{each} each")


def _timed(stepped: SteppedApp, sessions: list[Session]) -> float:
    began = time.perf_counter()
    stepped.do(_in_each(sessions))
    return time.perf_counter() - began


async def _in_each(sessions: list[Session]) -> None:
    await asyncio.gather(*map(_row_of_turns, sessions))
