"""PostgreSQL: turns per second beside asyncpg, raw psycopg and pgbench; what grows with history or sessions."""

import gc
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

from backstay import Store, Text, open_store
from backstay.model.ids import SessionId
from backstay.model.turn import OpenTurn
from benchmarks.instruments.figure import Figure
from benchmarks.instruments.sample_turns import DELTAS, Turn, recorded, run_turns, start, streamed, streamed_with_tool
from benchmarks.instruments.scratch_folders import in_memory
from benchmarks.instruments.stopwatch import micros
from benchmarks.postgres import hints, indexing
from benchmarks.postgres.floor_process import Floor, floor
from benchmarks.postgres.postgres_server import BenchmarkServer, fill_with_messages, fill_with_sessions, postgres_server
from benchmarks.postgres.postgres_traffic import RawClient, Trip, counting, recording
from benchmarks.sqlite import concurrent_clients

CROWDS = {1: 120, 16: 40, 64: 12}
# How much faster hand-written SQL through asyncpg may be: it writes less than half of the rows.
FLOORS = {1: 1 / 0.6, 64: 1 / 0.7}
SMALL, LARGE = 100, 10_000
FEW, MANY = 1_000, 100_000

_ROUNDS = 5
_PGBENCH_SECONDS = 1
_COUNTED = 40
_SPENT = 300
_POLLED = 2_000
_WARM_UP = 10


def figures() -> Iterator[Figure]:
    """Speed, our share of it, and the cost of a turn."""
    with postgres_server() as server, in_memory() as folder:
        bench = server.prepare_pgbench()
        for clients, turns in CROWDS.items():
            yield from _Contest(server, clients, turns).figures(bench)
        yield from _costs(server, folder)
        yield from _polling(server)
        yield from hints.figures(server)
        yield indexing.figure(server)
        yield from _growth(server, folder)


# --- turns per second -----------------------------------------------------------------------------------------------


class _Round(NamedTuple):
    """One way to run the same number of turns: turns per second, and processor seconds per turn at both ends."""

    rate: float
    client: float
    server: float

    @property
    def total(self) -> float:
        return self.client + self.server


class _Rounds(NamedTuple):
    """What each of them did in the same rounds; asyncpg only where it could be installed."""

    ours: list[_Round]
    raw: list[_Round]
    floor: list[_Round]
    pgbench: list[float]


class _Contest:
    """The store and raw psycopg, each on a copy of one database, with the same clients and turns; and asyncpg."""

    def __init__(self, server: BenchmarkServer, clients: int, turns: int) -> None:
        self._server, self._clients, self._turns = server, clients, turns
        prepared = server.database()
        with open_store(server.url(prepared)) as store:
            self._sessions = concurrent_clients.sessions(store, clients)
            concurrent_clients.record_turns(store, self._sessions, 2)
        self._tape = self._record(server.url(server.database(prepared)))
        self._ours, self._raw = server.database(prepared), server.database(prepared)

    def _record(self, url: str) -> list[list[list[Trip]]]:
        """For each client, its turns for every round."""
        turns: list[list[list[Trip]]] = [[] for _ in self._sessions]
        with recording() as tape, open_store(url) as store:

            def client(index: int) -> None:
                for _ in range(self._turns * (_ROUNDS + 1)):
                    recorded(store, self._sessions[index])
                    turns[index].append(tape.take())

            _together([partial(client, index) for index in range(self._clients)])
        return turns

    def figures(self, bench: str) -> Iterator[Figure]:
        ours, raw, floors, yardstick = self._rounds(bench)
        who = "1 client" if self._clients == 1 else f"{self._clients} clients"
        if floors:
            yield from self._beside_floor(ours, floors, who)
        rates = f"{_rate(raw):,.0f} and {_rate(ours):,.0f} turns/s"
        ratio = median(one.rate / other.rate for one, other in zip(raw, ours, strict=True))
        yield Figure(name=f"raw psycopg / ours, {who}", value=ratio, limit=2.0, detail=rates)
        ratio = median(one / other.rate for one, other in zip(yardstick, ours, strict=True))
        detail = f"{median(yardstick):,.0f} simple updates/s"
        yield Figure(name=f"pgbench / ours, {who}", value=ratio, detail=detail)
        client = median(one.client / other.client for one, other in zip(ours, raw, strict=True))
        detail = f"ours {micros(median(one.client for one in ours))}, raw {micros(median(one.client for one in raw))}"
        yield Figure(name=f"client's processor time / raw, {who}", value=client, detail=detail)
        seconds = median(one.server for one in ours)
        detail = f"raw {micros(median(one.server for one in raw))}"
        yield Figure(name=f"server's processor time per turn, {who}", value=seconds * 1e6, unit="us", detail=detail)

    def _beside_floor(self, ours: list[_Round], floors: list[_Round], who: str) -> Iterator[Figure]:
        ratio = median(one.rate / other.rate for one, other in zip(floors, ours, strict=True))
        detail = f"{_rate(floors):,.0f} and {_rate(ours):,.0f} turns/s"
        yield Figure(name=f"asyncpg / ours, {who}", value=ratio, limit=FLOORS.get(self._clients), detail=detail)
        ratio = median(one.total / other.total for one, other in zip(ours, floors, strict=True))
        detail = (
            f"{micros(median(one.total for one in ours))} and {micros(median(one.total for one in floors))}, both ends"
        )
        yield Figure(name=f"processor time / asyncpg's, {who}", value=ratio, detail=detail)

    def _rounds(self, bench: str) -> _Rounds:
        """Each in turn, so that noise hits all alike; the first round only warms up."""
        ours, raw, floors, yardstick = [], [], [], []
        with ExitStack() as stack:
            hand_written = stack.enter_context(floor(self._server.url(self._server.database()), self._clients))
            store = stack.enter_context(open_store(self._server.url(self._ours)))
            url = self._server.url(self._raw)
            players = [stack.enter_context(RawClient(url, f"raw.{index}")) for index in range(self._clients)]
            gc.collect()
            gc.freeze()
            for number in range(_ROUNDS + 1):
                ours.append(self._measure(self._speaking(store)))
                raw.append(self._measure(self._playing(players, number)))
                if hand_written is not None:
                    floors.append(self._measure_floor(hand_written))
                yardstick.append(self._server.pgbench(bench, self._clients, _PGBENCH_SECONDS))
            gc.unfreeze()
        return _Rounds(ours[1:], raw[1:], floors[1:], yardstick[1:])

    def _speaking(self, store: Store) -> list[Callable[[], None]]:
        def client(session: SessionId) -> None:
            for _ in range(self._turns):
                recorded(store, session)

        return [partial(client, session) for session in self._sessions]

    def _playing(self, players: Sequence[RawClient], number: int) -> list[Callable[[], None]]:
        low = number * self._turns

        def client(player: RawClient, turns: list[list[Trip]]) -> None:
            for turn in turns:
                player.play(turn)

        own = [
            [player.own(turn) for turn in turns[low : low + self._turns]]
            for player, turns in zip(players, self._tape, strict=True)
        ]
        return [partial(client, player, turns) for player, turns in zip(players, own, strict=True)]

    def _measure(self, clients: list[Callable[[], None]]) -> _Round:
        turns = self._turns * self._clients
        server, client, start = self._server.seconds(), time.process_time(), time.perf_counter()
        _together(clients)
        taken = time.perf_counter() - start
        return _Round(
            rate=turns / taken,
            client=(time.process_time() - client) / turns,
            server=(self._server.seconds() - server) / turns,
        )

    def _measure_floor(self, hand_written: Floor) -> _Round:
        turns = self._turns * self._clients
        server = self._server.seconds()
        spent = hand_written.record(self._turns)
        return _Round(turns / spent.seconds, spent.client / turns, (self._server.seconds() - server) / turns)


def _rate(rounds: Sequence[_Round]) -> float:
    return median(one.rate for one in rounds)


def _together(clients: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=client) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# --- the cost of a turn ---------------------------------------------------------------------------------------------


class _Cost(NamedTuple):
    """The average cost of a turn; log bytes without the full-page images after a checkpoint."""

    statements: float
    round_trips: float
    wal: float


def _cost(
    server: BenchmarkServer, folder: Path, database: str, sessions: Iterator[SessionId], turn: Turn = recorded
) -> _Cost:
    with counting(folder, database) as traffic, open_store(server.url(database)) as store:
        for _ in range(_WARM_UP):
            turn(store, next(sessions))
        before, written = traffic(), []
        for _ in range(_COUNTED):
            wal = server.wal()
            turn(store, next(sessions))
            written.append(server.wal() - wal)
        spent = traffic().since(before)
    return _Cost(spent.statements / _COUNTED, spent.round_trips / _COUNTED, mean(sorted(written)[5:-5]))


class _Speech:
    """One checkpoint of text in a long turn."""

    def __init__(self) -> None:
        self._held: tuple[Store, OpenTurn] | None = None

    def __call__(self, store: Store, session: SessionId) -> None:
        if self._held is None or self._held[0] is not store:
            self._held = store, start(store, session)
        self._held = store, store.checkpoint(self._held[1], [Text(DELTAS[0])]).open


_KINDS: dict[str, Turn] = {
    "a turn recorded": recorded,
    "a turn streamed": streamed,
    "a turn with a tool": streamed_with_tool,
    "a checkpoint": _Speech(),
}


def _costs(server: BenchmarkServer, folder: Path) -> Iterator[Figure]:
    """Each kind of turn, for the page on capacity."""
    for name, turn in _KINDS.items():
        database = server.database()
        session = fill_with_messages(server.url(database), SMALL)
        cost = _cost(server, folder, database, _always(session), turn)
        detail = f"{cost.statements:,.1f} statements, {cost.wal:,.0f} bytes of log"
        yield Figure(name=f"round trips, {name}", value=cost.round_trips, unit="trips", detail=detail)
        yield from _spent(server, database, session, name, turn)


def _spent(server: BenchmarkServer, database: str, session: SessionId, name: str, turn: Turn) -> Iterator[Figure]:
    """Processor time at both ends, and bytes on the disk."""
    with open_store(server.url(database)) as store:
        run_turns(store, session, _WARM_UP, turn)
        size, there, here = server.size(database), server.seconds(), time.process_time()
        run_turns(store, session, _SPENT, turn)
        here, there = (time.process_time() - here) / _SPENT, (server.seconds() - there) / _SPENT
        detail = f"client's {micros(here)}, {(server.size(database) - size) / _SPENT:,.0f} bytes on the disk"
    yield Figure(name=f"server's processor time, {name}", value=there * 1e6, unit="us", detail=detail)


def _polling(server: BenchmarkServer) -> Iterator[Figure]:
    """The cost of one poll for changes; a follower or a running turn polls 40 times a second."""
    with open_store(server.url(server.database())) as store:
        store.version()
        there, here = server.seconds(), time.process_time()
        for _ in range(_POLLED):
            store.version()
        there, here = (server.seconds() - there) / _POLLED, (time.process_time() - here) / _POLLED
    yield Figure(
        name="server's processor time, a poll", value=there * 1e6, unit="us", detail=f"client's {micros(here)}"
    )


def _growth(server: BenchmarkServer, folder: Path) -> Iterator[Figure]:
    small, large = server.database(), server.database()
    short = _always(fill_with_messages(server.url(small), SMALL))
    long = _always(fill_with_messages(server.url(large), LARGE))
    yield from _compared(
        f"a turn at {LARGE:,} messages", _cost(server, folder, small, short), _cost(server, folder, large, long)
    )
    few, many = server.database(), server.database()
    one, other = fill_with_sessions(server.url(few), FEW), fill_with_sessions(server.url(many), MANY)
    yield from _compared(
        f"a turn among {MANY:,} sessions",
        _cost(server, folder, few, _anywhere(one)),
        _cost(server, folder, many, _anywhere(other)),
    )
    server.checkpoint()
    cold = _cost(server, folder, many, _anywhere(other))
    detail = f"a turn anywhere among {MANY:,} sessions"
    yield Figure(name="log bytes, pages cold after a checkpoint", value=cold.wal, unit="bytes", detail=detail)


def _compared(name: str, small: _Cost, large: _Cost) -> Iterator[Figure]:
    for what, few, many in zip(("statements", "round trips", "log bytes"), small, large, strict=True):
        detail = f"{many:,.0f} and {few:,.0f}"
        yield Figure(name=f"{name}: {what}", value=many / few, limit=1.15, detail=detail)


def _always(session: SessionId) -> Iterator[SessionId]:
    while True:
        yield session


def _anywhere(sessions: Sequence[SessionId]) -> Iterator[SessionId]:
    dice = random.Random(5)
    while True:
        yield dice.choice(sessions)
