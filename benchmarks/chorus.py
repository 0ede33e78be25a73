"""A chorus: many turns at once through the runtime, against as many callers of the store alone."""

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from backstay import App
from benchmarks import alone
from benchmarks.alone import VERBS, OwnThread, own_thread
from benchmarks.driven import Driven, ask, driven, saying
from benchmarks.figure import Figure
from benchmarks.speech import DELTAS, OWNER

SIZES = (1, 64, 500)
_ROUNDS = 5
_SECONDS = 1.0
# No session grows long: a turn reads its history, and both sides should read as much.
_TURNS = 10


def figures(room: Path) -> Iterator[Figure]:
    """Durable turns per second, by how many are under way at once."""
    for size in SIZES:
        with ExitStack() as stack:
            stage = stack.enter_context(driven(room / f"chorus-{size}.db", saying(DELTAS)))
            way = stack.enter_context(own_thread(room / f"callers-{size}.db"))
            gc.collect()
            gc.freeze()
            rates = [(_sing(stage, size), _call(way, size)) for _ in range(_ROUNDS)]
            gc.unfreeze()
        ours, theirs = (median(rate) for rate in zip(*rates, strict=True))
        detail = f"{ours:,.0f} and {theirs:,.0f} turns/s of {len(DELTAS)} deltas, in {room.parent}; store: {VERBS}"
        name = f"turns/s, {size} at once / store, {size} {'thread' if size == 1 else 'threads'}"
        yield Figure(name=name, value=median(one / other for one, other in rates), detail=detail)


def _sing(stage: Driven, size: int) -> float:
    """Turns per second of so many senders on one loop."""
    start = time.perf_counter()
    done = stage.do(_all_at_once(stage.app, size, start + _SECONDS))
    return done / (time.perf_counter() - start)


async def _all_at_once(app: App, size: int, end: float) -> int:
    return sum(await asyncio.gather(*(_sender(app, end) for _ in range(size))))


async def _sender(app: App, end: float) -> int:
    done = 0
    while True:
        session = await app.session()
        for _ in range(_TURNS):
            await ask(session)
            done += 1
            if time.perf_counter() >= end:
                return done


def _call(way: OwnThread, size: int) -> float:
    """Turns per second of so many threads with one store."""
    start = time.perf_counter()
    done = [0] * size
    threads = [threading.Thread(target=_caller, args=(way, done, index, start + _SECONDS)) for index in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - start)


def _caller(way: OwnThread, done: list[int], index: int, end: float) -> None:
    while True:
        session = way.store.create(owner=OWNER).id
        for _ in range(_TURNS):
            alone.walk(way, session, DELTAS)
            done[index] += 1
            if time.perf_counter() >= end:
                return
