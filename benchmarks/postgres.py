"""PostgreSQL: turns per second against raw psycopg and pgbench, and what does not grow with history or sessions."""

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
from benchmarks import crowd, hints, indexing
from benchmarks.figure import Figure
from benchmarks.scratch import in_memory
from benchmarks.site import Site, fill_with_messages, fill_with_sessions, site
from benchmarks.speech import DELTAS, Turn, recorded, start, streamed, streamed_with_tool, talk
from benchmarks.stopwatch import micros
from benchmarks.wiretap import RawClient, Statement, counting, recording

CROWDS = {1: 120, 16: 40, 64: 12}
SMALL, LARGE = 100, 10_000
FEW, MANY = 1_000, 100_000

_ROUNDS = 5
_PGBENCH_SECONDS = 1
_COUNTED = 40
_SPENT = 300
_POLLED = 2_000
_WARM_UP = 10


def figures() -> Iterator[Figure]:
    """How quick, what of it is ours, and what a turn costs."""
    with site() as server, in_memory() as room:
        bench = server.prepare_pgbench()
        for clients, turns in CROWDS.items():
            yield from _Contest(server, clients, turns).figures(bench)
        yield from _costs(server, room)
        yield from _polling(server)
        yield from hints.figures(server)
        yield indexing.figure(server)
        yield from _growth(server, room)


# --- turns per second -----------------------------------------------------------------------------------------------


class _Round(NamedTuple):
    """One way of doing the same number of turns: turns per second, and processor seconds per turn at both ends."""

    rate: float
    client: float
    server: float


class _Contest:
    """The store and raw psycopg, each on a copy of one database, with the same clients and turns."""

    def __init__(self, server: Site, clients: int, turns: int) -> None:
        self._server, self._clients, self._turns = server, clients, turns
        ground = server.database()
        with open_store(server.url(ground)) as store:
            self._sessions = crowd.sessions(store, clients)
            crowd.talk(store, self._sessions, 2)
        self._tape = self._record(server.url(server.database(ground)))
        self._ours, self._raw = server.database(ground), server.database(ground)

    def _record(self, url: str) -> list[list[list[Statement]]]:
        """For each client, its turns for every round."""
        turns: list[list[list[Statement]]] = [[] for _ in self._sessions]
        with recording() as tape, open_store(url) as store:

            def client(index: int) -> None:
                for _ in range(self._turns * (_ROUNDS + 1)):
                    recorded(store, self._sessions[index])
                    turns[index].append(tape.take())

            _together([partial(client, index) for index in range(self._clients)])
            self._prepared = tape.prepared
        return turns

    def figures(self, bench: str) -> Iterator[Figure]:
        ours, raw, yardstick = self._rounds(bench)
        who = "1 client" if self._clients == 1 else f"{self._clients} clients"
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

    def _rounds(self, bench: str) -> tuple[list[_Round], list[_Round], list[float]]:
        """Each in turn, so that noise hits all alike; the first round only warms up."""
        ours, raw, yardstick = [], [], []
        with ExitStack() as stack:
            store = stack.enter_context(open_store(self._server.url(self._ours)))
            url = self._server.url(self._raw)
            players = [
                stack.enter_context(RawClient(url, f"raw.{index}", self._prepared)) for index in range(self._clients)
            ]
            gc.collect()
            gc.freeze()
            for number in range(_ROUNDS + 1):
                ours.append(self._measure(self._speaking(store)))
                raw.append(self._measure(self._playing(players, number)))
                yardstick.append(self._server.pgbench(bench, self._clients, _PGBENCH_SECONDS))
            gc.unfreeze()
        return ours[1:], raw[1:], yardstick[1:]

    def _speaking(self, store: Store) -> list[Callable[[], None]]:
        def client(session: SessionId) -> None:
            for _ in range(self._turns):
                recorded(store, session)

        return [partial(client, session) for session in self._sessions]

    def _playing(self, players: Sequence[RawClient], number: int) -> list[Callable[[], None]]:
        low = number * self._turns

        def client(player: RawClient, turns: list[list[Statement]]) -> None:
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


def _rate(rounds: Sequence[_Round]) -> float:
    return median(one.rate for one in rounds)


def _together(clients: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=client) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# --- what a turn costs ----------------------------------------------------------------------------------------------


class _Cost(NamedTuple):
    """What each of some turns cost on the average; bytes of the log as usual, without what a page costs once."""

    statements: float
    round_trips: float
    wal: float


def _cost(server: Site, room: Path, database: str, sessions: Iterator[SessionId], turn: Turn = recorded) -> _Cost:
    with counting(room, database) as traffic, open_store(server.url(database)) as store:
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
    """One checkpoint of words in a turn that goes on and on."""

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


def _costs(server: Site, room: Path) -> Iterator[Figure]:
    """Each kind of turn, for the page on capacity."""
    for name, turn in _KINDS.items():
        database = server.database()
        session = fill_with_messages(server.url(database), SMALL)
        cost = _cost(server, room, database, _always(session), turn)
        detail = f"{cost.statements:,.1f} statements, {cost.wal:,.0f} bytes of log"
        yield Figure(name=f"round trips, {name}", value=cost.round_trips, unit="trips", detail=detail)
        yield from _spent(server, database, session, name, turn)


def _spent(server: Site, database: str, session: SessionId, name: str, turn: Turn) -> Iterator[Figure]:
    """Processor time at both ends, and what is left on the disk."""
    with open_store(server.url(database)) as store:
        talk(store, session, _WARM_UP, turn)
        size, there, here = server.size(database), server.seconds(), time.process_time()
        talk(store, session, _SPENT, turn)
        here, there = (time.process_time() - here) / _SPENT, (server.seconds() - there) / _SPENT
        detail = f"client's {micros(here)}, {(server.size(database) - size) / _SPENT:,.0f} bytes on the disk"
    yield Figure(name=f"server's processor time, {name}", value=there * 1e6, unit="us", detail=detail)


def _polling(server: Site) -> Iterator[Figure]:
    """What it costs to ask whether anything has happened, as whoever follows or runs a turn does 40 times a second."""
    with open_store(server.url(server.database())) as store:
        store.version()
        there, here = server.seconds(), time.process_time()
        for _ in range(_POLLED):
            store.version()
        there, here = (server.seconds() - there) / _POLLED, (time.process_time() - here) / _POLLED
    yield Figure(
        name="server's processor time, a poll", value=there * 1e6, unit="us", detail=f"client's {micros(here)}"
    )


def _growth(server: Site, room: Path) -> Iterator[Figure]:
    small, large = server.database(), server.database()
    short = _always(fill_with_messages(server.url(small), SMALL))
    long = _always(fill_with_messages(server.url(large), LARGE))
    yield from _compared(
        f"a turn at {LARGE:,} messages", _cost(server, room, small, short), _cost(server, room, large, long)
    )
    few, many = server.database(), server.database()
    one, other = fill_with_sessions(server.url(few), FEW), fill_with_sessions(server.url(many), MANY)
    yield from _compared(
        f"a turn among {MANY:,} sessions",
        _cost(server, room, few, _anywhere(one)),
        _cost(server, room, many, _anywhere(other)),
    )
    server.checkpoint()
    cold = _cost(server, room, many, _anywhere(other))
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
