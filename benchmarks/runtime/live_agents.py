"""Live agents and compaction: cost of validation, reuse of agents, and a rotation of a long session."""

import asyncio
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import mean, median

import msgspec

import backstay
from backstay import Pooling, Text, open_store
from backstay.agents.adapters import AgentLike
from backstay.agents.port import AgentTurn
from backstay.model import message
from backstay.model.content import Body
from backstay.model.ids import SessionId
from backstay.model.message import Message
from backstay.model.turn import Completed
from backstay.runtime.session_handle import Session
from benchmarks.instruments.figure import Figure
from benchmarks.instruments.prepared_databases import PreparedDatabase, session_of
from benchmarks.instruments.sample_turns import DELTAS, MESSAGES, OWNER, QUESTION
from benchmarks.instruments.scratch_folders import copy, in_memory
from benchmarks.instruments.sqlite_counters import SqliteCounters, counted
from benchmarks.runtime.stepped_app import STEPWISE, ask

SMALL, LARGE = 100, 10_000
KEPT = 20
_TURNS = 10
_COPIES = 3
# No polling for writes of others: a count must not depend on the duration.
_QUIET = msgspec.structs.replace(STEPWISE, poll=3_600.0)


def figures() -> Iterator[Figure]:
    """Statements of a warm turn, the hit rate of a mixed day, and the cost of a rotation as the history grows."""
    with in_memory() as folder:
        yield from _validation(folder)
        yield from asyncio.run(_mixed_day(folder / "day.db"))
        yield from _rotation(folder)


# --- validation -----------------------------------------------------------------------------------------------------


class Warm:
    """A live agent that answers with the usual words, and reports when a turn begins."""

    def __init__(self, count: "Count") -> None:
        self._count = count

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        await self._count.turn()
        for words in DELTAS:
            yield Text(words)

    async def aclose(self) -> None:
        """Nothing is held."""


class Loaded(Warm):
    """The same, with the history loaded once."""

    async def load(self, messages: tuple[Message, ...]) -> None:
        """It is not needed here."""


class Count:
    """How many statements a turn takes, from its agent's beginning to that of the next turn's.

    All turns wait in the queue before the first continues, so only the turns themselves are counted.
    """

    def __init__(self, counters: SqliteCounters) -> None:
        self._counters = counters
        self._marks: list[int] = []
        self._first, self._ready, self._over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def turn(self) -> None:
        """A turn begins; the first waits until all are in the queue."""
        self._first.set()
        await self._ready.wait()
        self._marks.append(self._counters.statements)
        if len(self._marks) > _TURNS:
            self._over.set()

    async def take(self, session: Session) -> float:
        """The median of several warm turns: now and then the upkeep of the store adds statements."""
        await session.send(QUESTION)
        await self._first.wait()
        for _ in range(_TURNS + 1):
            await session.send(QUESTION)
        self._ready.set()
        await self._over.wait()
        return median(later - earlier for earlier, later in pairwise(self._marks))


def _validation(folder: Path) -> Iterator[Figure]:
    function = asyncio.run(_counted(folder / "function.db", "function"))
    warm = asyncio.run(_counted(folder / "warm.db", "warm"))
    loaded = asyncio.run(_counted(folder / "loaded.db", "loaded"))
    yield Figure(
        name="statements to validate a live agent",
        value=warm - function,
        unit="",
        limit=0,
        exactly=True,
        detail=f"{warm:g} a turn, {function:g} by a function",
    )
    yield Figure(
        name="statements of a warm turn / a function's",
        value=loaded / function,
        limit=1,
        detail=f"{loaded:g} a turn: it loaded the history once",
    )


async def _counted(path: Path, kind: str) -> float:
    with counted() as counters:
        count = Count(counters)
        warm = Warm(count)

        async def function(turn: AgentTurn) -> AsyncIterator[Body]:
            async for body in warm.stream(turn):
                yield body

        makers: dict[str, AgentLike] = {
            "function": function,
            "warm": backstay.live(lambda: Warm(count)),
            "loaded": backstay.live(lambda: Loaded(count)),
        }
        async with backstay.open(path, agent=makers[kind], timing=_QUIET) as app:
            return await count.take(await app.session())


# --- a mixed day ----------------------------------------------------------------------------------------------------

_SESSIONS, _CAPACITY, _DAY = 60, 24, 600


class Resident:
    """A live agent that answers at once."""

    async def load(self, messages: tuple[Message, ...]) -> None:
        """It is not needed here."""

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("yes")

    async def aclose(self) -> None:
        """Nothing is held."""


async def _mixed_day(path: Path) -> list[Figure]:
    """Some sessions are busy and some idle; titles change; now and then another process writes or undoes."""
    dice, ideal = random.Random(4), Ideal(_CAPACITY)
    async with backstay.open(path, agent=Resident, pooling=Pooling(capacity=_CAPACITY)) as app:
        sessions = [await app.session() for _ in range(_SESSIONS)]
        with open_store(path) as other:
            for _ in range(_DAY):
                session = sessions[min(int(dice.expovariate(0.08)), _SESSIONS - 1)]
                await ask(session)
                ideal.answered(session.id)
                happened = dice.random()
                if happened < 0.3:
                    await session.rename(f"title {happened}")
                elif happened < 0.35:
                    other.record(session.id, MESSAGES, owner=OWNER)
                    ideal.changed(session.id)
                elif happened < 0.38:
                    other.undo(session.id, owner=OWNER)
                    ideal.changed(session.id)
        statistics = app.pool.statistics
    built = ", ".join(f"{reason} {times}" for reason, times in sorted(statistics.built.items()))
    rate = statistics.hits / _DAY
    detail = f"{statistics.hits} of {_DAY} turns; built: {built}"
    return [
        Figure(name="hit rate of a mixed day", value=rate, unit="", detail=detail),
        Figure(
            name="hits / turns that could be hits",
            value=statistics.hits / ideal.hits,
            limit=1,
            exactly=True,
            detail=f"{_SESSIONS} sessions, folder for {_CAPACITY}; {ideal.hits} were still there and unchanged",
        ),
    ]


class Ideal:
    """The possible hits: an agent is kept and nothing has changed, if the longest unused are evicted first."""

    def __init__(self, capacity: int) -> None:
        self._capacity, self._kept, self.hits = capacity, OrderedDict[SessionId, bool](), 0

    def answered(self, session: SessionId) -> None:
        self.hits += self._kept.pop(session, False)
        self._kept[session] = True
        if len(self._kept) > self._capacity:
            self._kept.popitem(last=False)

    def changed(self, session: SessionId) -> None:
        if session in self._kept:
            self._kept[session] = False


# --- rotation -------------------------------------------------------------------------------------------------------


def _rotation(folder: Path) -> Iterator[Figure]:
    """A compaction as a turn, from its opening to its end, that keeps the last few messages."""
    small, large = session_of(folder, SMALL), session_of(folder, LARGE)
    few = [_rotated(folder, small) for _ in range(_COPIES)]
    many = [_rotated(folder, large) for _ in range(_COPIES)]
    for name, one, other in (
        ("steps", [seen.steps for seen in few], [seen.steps for seen in many]),
        ("log bytes", [seen.log_bytes for seen in few], [seen.log_bytes for seen in many]),
    ):
        detail = f"{mean(other):,.0f} and {mean(one):,.0f}"
        yield Figure(
            name=f"rotation at {LARGE:,} messages: {name}", value=mean(other) / mean(one), limit=1.3, detail=detail
        )


def _rotated(folder: Path, prepared: PreparedDatabase) -> SqliteCounters:
    with _warmed(folder, prepared) as (counters, store):
        before = counters.copy()
        opened = store.compact(prepared.session, owner=OWNER).opened
        if opened is None:
            raise RuntimeError(f"{prepared.session} is busy in a benchmark that is its only user")
        keep_from = opened.input.position + 1 - KEPT
        said = [message.summary(QUESTION)]
        rotated = store.rotate(
            prepared.session, said, owner=OWNER, parent=opened.window, keep_from=keep_from, turn=opened
        )
        store.finish(rotated.open or opened, Completed())
        return counters.since(before)


@contextmanager
def _warmed(folder: Path, prepared: PreparedDatabase) -> Iterator[tuple[SqliteCounters, backstay.Store]]:
    """A copy of the database whose statements are prepared; the store closes its writer last."""
    with counted() as counters, open_store(copy(prepared.path, folder / "rotated.db")) as store:
        other = store.record(store.create(owner=OWNER).id, MESSAGES, owner=OWNER).session.id
        opened = store.compact(other, owner=OWNER).opened
        if opened is not None:
            said = [message.summary("so far")]
            rotated = store.rotate(other, said, owner=OWNER, parent=opened.window, keep_from=1, turn=opened)
            store.finish(rotated.open or opened, Completed())
        yield counters, store
