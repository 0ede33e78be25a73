"""Concurrent turns through the runtime, against as many direct callers of the store."""

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from backstay import App
from benchmarks.instruments.figure import Figure
from benchmarks.instruments.sample_turns import DELTAS, OWNER
from benchmarks.runtime import store_turn
from benchmarks.runtime.stepped_app import SteppedApp, answering_with, ask, stepped_app
from benchmarks.runtime.store_turn import VERBS, OwnThread, own_thread

SIZES = (1, 64, 500)
_ROUNDS = 5
_SECONDS = 1.0
# Sessions stay short: a turn reads its history, and both sides should read the same amount.
_TURNS = 10


def figures(folder: Path) -> Iterator[Figure]:
    """Durable turns per second, by the number of concurrent turns."""
    for size in SIZES:
        with ExitStack() as stack:
            stepped = stack.enter_context(stepped_app(folder / f"concurrent-{size}.db", answering_with(DELTAS)))
            runner = stack.enter_context(own_thread(folder / f"callers-{size}.db"))
            gc.collect()
            gc.freeze()
            rates = [(_through_runtime(stepped, size), _by_callers(runner, size)) for _ in range(_ROUNDS)]
            gc.unfreeze()
        ours, theirs = (median(rate) for rate in zip(*rates, strict=True))
        detail = f"{ours:,.0f} and {theirs:,.0f} turns/s of {len(DELTAS)} deltas, in {folder.parent}; store: {VERBS}"
        name = f"turns/s, {size} at once / store, {size} {'thread' if size == 1 else 'threads'}"
        yield Figure(name=name, value=median(one / other for one, other in rates), detail=detail)


def _through_runtime(stepped: SteppedApp, size: int) -> float:
    """Turns per second of this number of senders on one loop."""
    start = time.perf_counter()
    done = stepped.do(_all_at_once(stepped.app, size, start + _SECONDS))
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


def _by_callers(runner: OwnThread, size: int) -> float:
    """Turns per second of this number of threads with one store."""
    start = time.perf_counter()
    done = [0] * size
    threads = [threading.Thread(target=_caller, args=(runner, done, index, start + _SECONDS)) for index in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - start)


def _caller(runner: OwnThread, done: list[int], index: int, end: float) -> None:
    while True:
        session = runner.store.create(owner=OWNER).id
        for _ in range(_TURNS):
            store_turn.run_turn(runner, session, DELTAS)
            done[index] += 1
            if time.perf_counter() >= end:
                return
