"""Hints on PostgreSQL: how much sooner a commit elsewhere is seen, and the cost for the committing process."""

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from statistics import median, quantiles

import backstay
from backstay import App, Store, open_store
from backstay.model.event import SessionRenamed
from backstay.model.ids import SessionId
from benchmarks.instruments.figure import Figure
from benchmarks.instruments.sample_turns import OWNER
from benchmarks.postgres.postgres_server import BenchmarkServer
from benchmarks.sqlite import concurrent_clients

_COMMITS = 200
_CLIENTS, _TURNS, _ROUNDS = 16, 40, 9


def figures(server: BenchmarkServer) -> Iterator[Figure]:
    """Latency and throughput, each with and without, in one run."""
    yield from _latency(server)
    yield _throughput(server)


def _latency(server: BenchmarkServer) -> Iterator[Figure]:
    """The same commits, seen by one app that receives hints and by one that polls."""
    hinted, polled = asyncio.run(_seen(server.url(server.database())))
    detail = f"{median(hinted) * 1e3:.1f} ms and {median(polled) * 1e3:.1f} ms after the commit, of {_COMMITS}"
    yield Figure(
        name="a commit elsewhere is seen, hinted / polled",
        value=median(hinted) / median(polled),
        limit=0.7,
        detail=detail,
    )
    worst = [quantiles(times, n=20)[-1] * 1e3 for times in (hinted, polled)]
    detail = f"{worst[0]:.1f} ms and {worst[1]:.1f} ms"
    yield Figure(name="the same, 95 of 100", value=worst[0] / worst[1], detail=detail)


async def _seen(url: str) -> tuple[list[float], list[float]]:
    async with AsyncExitStack() as stack:
        writer = await stack.enter_async_context(backstay.open(url, owner=OWNER))
        session = await writer.session()
        committed: dict[str, float] = {}
        readers = [await stack.enter_async_context(backstay.open(url, owner=OWNER, notify=p)) for p in (True, False)]
        times: list[list[float]] = [[], []]
        following = [
            asyncio.create_task(_follow(app, session.id, committed, seen))
            for app, seen in zip(readers, times, strict=True)
        ]
        dice = random.Random(7)
        for number in range(_COMMITS):
            # At any moment between two polls.
            await asyncio.sleep(dice.uniform(0.04, 0.08))
            committed[str(number)] = time.perf_counter()
            await session.rename(str(number))
            committed[str(number)] = time.perf_counter()
        await asyncio.gather(*following)
        return times[0], times[1]


async def _follow(app: App, session: SessionId, committed: dict[str, float], seen: list[float]) -> None:
    async for event in (await app.session(session)).follow():
        if isinstance(event.body, SessionRenamed) and event.body.title is not None:
            seen.append(time.perf_counter() - committed[event.body.title])
            if len(seen) == _COMMITS:
                return


def _throughput(server: BenchmarkServer) -> Figure:
    """The same clients with and without hints, alternately, while another process listens."""
    url = server.url(server.database())
    with ExitStack() as stack:
        plain, hinting, listening = (stack.enter_context(open_store(url)) for _ in range(3))
        for store in (hinting, listening):
            store.watch_hints(_nothing)
        sessions = concurrent_clients.sessions(plain, _CLIENTS)
        pairs = [(_taken(hinting, sessions), _taken(plain, sessions)) for _ in range(_ROUNDS + 1)][1:]
    rates = [_CLIENTS * _TURNS / median(pair[way] for pair in pairs) for way in (0, 1)]
    detail = f"{rates[0]:,.0f} and {rates[1]:,.0f} turns/s, {_CLIENTS} clients"
    return Figure(
        name="turns without hints / with", value=median(one / two for one, two in pairs), limit=1.1, detail=detail
    )


def _taken(store: Store, sessions: list[SessionId]) -> float:
    start = time.perf_counter()
    concurrent_clients.record_turns(store, sessions, _TURNS)
    return time.perf_counter() - start


def _nothing() -> None:
    """There is no follower."""
