"""Durable turns per second on a disk: one client and many, against raw apsw that commits each turn."""

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from statistics import median

from backstay import Store, open_store
from backstay.model.ids import SessionId
from benchmarks.instruments.figure import Figure
from benchmarks.instruments.raw_sqlite import Raw, Statement, recording
from benchmarks.instruments.sample_turns import OWNER, recorded, run_turns
from benchmarks.instruments.scratch_folders import copy, in_memory, on_disk
from benchmarks.sqlite import concurrent_clients

CLIENTS = 64
_ROUNDS = 5
_SECONDS = 0.6
_TAPE = 6_000


def figures() -> Iterator[Figure]:
    """Durable turns per second on the disk, and how evenly many clients share them."""
    with in_memory() as quick, on_disk() as folder, ExitStack() as stack:
        base = folder / "base.db"
        raw = _Player(base, quick, _prepared(base))
        stack.callback(raw.close)
        one, many = (_Crowd(stack.enter_context(open_store(folder / f"{size}.db")), size) for size in (1, CLIENTS))
        gc.freeze()
        rates = [(raw.rate(), one.rate(), many.rate()) for _ in range(_ROUNDS)]
        gc.unfreeze()
        detail = f"one by one, in {folder.parent}"
        yield Figure(
            name="durable turns/s, raw apsw", value=median(rate[0] for rate in rates), unit="/s", detail=detail
        )
        yield one.figure([ours / raw for raw, ours, _ in rates], [rate[1] for rate in rates])
        yield many.figure([ours / raw for raw, _, ours in rates], [rate[2] for rate in rates])
        yield many.fairness()


def _prepared(path: Path) -> SessionId:
    with open_store(path) as store:
        session = store.create(owner=OWNER).id
        run_turns(store, session, 2)
    return session


class _Player:
    """Raw apsw on the disk, with a tape that was recorded where syncs are quick."""

    def __init__(self, base: Path, quick: Path, session: SessionId) -> None:
        setup, turns = _tape(copy(base, quick / "tape.db"), session)
        self._turns = iter(turns)
        self._raw = Raw(base)
        self._raw.prepare(setup)

    def rate(self) -> float:
        """Turns per second, until the time is up or this round's part of the tape is played."""
        start = now = time.perf_counter()
        done = 0
        for turn in islice(self._turns, _TAPE // _ROUNDS):
            self._raw.play(turn)
            done += 1
            now = time.perf_counter()
            if now - start >= _SECONDS:
                break
        return done / (now - start)

    def close(self) -> None:
        self._raw.close()


def _tape(path: Path, session: SessionId) -> tuple[list[Statement], list[list[Statement]]]:
    turns = []
    with recording() as tape, open_store(path) as store:
        tape.take()
        recorded(store, session)
        setup = tape.take()
        for _ in range(_TAPE):
            recorded(store, session)
            turns.append(tape.take())
    return setup, turns


class _Crowd:
    """Clients of one store on the disk."""

    def __init__(self, store: Store, clients: int) -> None:
        self._store, self._clients = store, clients
        self._sessions = concurrent_clients.sessions(store, clients)
        self._waits: list[list[float]] = [[] for _ in range(clients)]

    def rate(self) -> float:
        """Turns per second of all clients together."""
        start = time.perf_counter()
        waits = concurrent_clients.record_until(self._store, self._sessions, _SECONDS)
        seconds = time.perf_counter() - start
        for own, more in zip(self._waits, waits, strict=True):
            own.extend(more)
        return sum(len(own) for own in waits) / seconds

    def figure(self, ratios: Sequence[float], rates: Sequence[float]) -> Figure:
        who = "1 client" if self._clients == 1 else f"{self._clients} clients"
        waits = sorted(wait for own in self._waits for wait in own)
        usual, worst = waits[len(waits) // 2] * 1e3, waits[-1] * 1e3
        detail = f"{median(rates):,.0f} turns/s; median wait {usual:,.1f} ms, worst {worst:,.0f} ms"
        return Figure(name=f"durable turns/s, {who} / raw", value=median(ratios), detail=detail)

    def fairness(self) -> Figure:
        turns = [len(own) for own in self._waits]
        detail = f"{max(turns)} and {min(turns)} turns"
        return Figure(name="busiest client / idlest client", value=max(turns) / max(min(turns), 1), detail=detail)
