"""What HTTP adds: turns and their acceptance against the runtime alone, and a crowd on one session."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import NamedTuple

import backstay
from backstay.server.auth.authenticator import digest, new_secret
from backstay.store import open_store
from benchmarks.driven import saying
from benchmarks.figure import Figure
from benchmarks.scratch import on_disk
from benchmarks.speech import DELTAS, QUESTION
from benchmarks.wire import Wire

AGENT = saying(DELTAS)
CLIENTS = (1, 16, 64)
TURNS = 256
CROWD = 10_000
BODY = json.dumps({"text": QUESTION}).encode()


class Run(NamedTuple):
    """What one run took: seconds for all turns, and for each acceptance."""

    seconds: float
    accepted: list[float]


class Served(NamedTuple):
    """A server in a process of its own."""

    port: int
    pid: int
    token: str


def figures() -> Iterator[Figure]:
    """Acceptance and turns per second for a few clients, then the crowd."""
    for clients in CLIENTS:
        with on_disk() as room:
            alone = asyncio.run(_alone(room / "alone.db", clients))
        with on_disk() as room, _serving(room) as served:
            asyncio.run(_over_http(served, clients, turns=clients))
            served_run = asyncio.run(_over_http(served, clients))
        yield from _compared(clients, served_run, alone)
    with on_disk() as room, _serving(room) as served:
        yield from asyncio.run(_crowd(served, int(os.environ.get("BACKSTAY_CROWD", CROWD))))


def _compared(clients: int, ours: Run, alone: Run) -> Iterator[Figure]:
    mine, theirs = median(ours.accepted) * 1000, median(alone.accepted) * 1000
    who = f"{clients} client{'s' if clients > 1 else ''}"
    detail = f"p50 {mine:.2f} ms, the runtime {theirs:.2f} ms"
    yield Figure(name=f"accepted durably over HTTP / runtime, {who}", value=mine / theirs, detail=detail)
    rate, rate_alone = TURNS / ours.seconds, TURNS / alone.seconds
    detail = f"{rate:,.0f} turns/s, the runtime {rate_alone:,.0f}"
    yield Figure(name=f"time per turn over HTTP / runtime, {who}", value=rate_alone / rate, detail=detail)


# --- turns ----------------------------------------------------------------------------------------------------------


async def _alone(path: Path, clients: int) -> Run:
    accepted: list[float] = []

    async def talk(app: backstay.App, turns: int) -> None:
        session = await app.session()
        for _ in range(turns):
            began = perf_counter()
            turn = await session.send(QUESTION)
            accepted.append(perf_counter() - began)
            await turn.outcome()

    async with backstay.open(path, agent=AGENT) as app:
        began = perf_counter()
        await asyncio.gather(*(talk(app, TURNS // clients) for _ in range(clients)))
        return Run(perf_counter() - began, accepted)


async def _over_http(served: Served, clients: int, turns: int = TURNS) -> Run:
    accepted: list[float] = []

    async def talk(each: int) -> None:
        asking, hearing = await Wire.to(served.port, served.token), await Wire.to(served.port, served.token)
        session = (await asking.post("/api/sessions"))["id"]
        frames = hearing.follow(session)
        for _ in range(each):
            began = perf_counter()
            await asking.post(f"/api/sessions/{session}/turns", BODY)
            accepted.append(perf_counter() - began)
            async for frame in frames:
                if b'"turn_ended"' in frame:
                    break
        asking.close()
        hearing.close()

    began = perf_counter()
    await asyncio.gather(*(talk(turns // clients) for _ in range(clients)))
    return Run(perf_counter() - began, accepted)


# --- the crowd ------------------------------------------------------------------------------------------------------


async def _crowd(served: Served, size: int) -> list[Figure]:
    asking = await Wire.to(served.port, served.token)
    session = (await asking.post("/api/sessions"))["id"]
    asking.close()
    before = _resident(served.pid)
    came: list[float] = []
    ready = asyncio.Semaphore(0)

    async def listen() -> None:
        wire = await Wire.to(served.port, served.token)
        async for frame in wire.follow(session):
            if b"session_created" in frame:
                ready.release()
            if b'"turn_started"' in frame:
                came.append(perf_counter())
                break
        wire.close()

    began = perf_counter()
    crowd = []
    for place in range(size):
        crowd.append(asyncio.create_task(listen()))
        if place % 100 == 99:
            await asyncio.sleep(0)
            for _ in range(100):
                await ready.acquire()
    opened, memory = perf_counter() - began, _resident(served.pid)
    asking = await Wire.to(served.port, served.token)  # the first one was idle for too long to be kept
    began = perf_counter()
    await asking.post(f"/api/sessions/{session}/turns", BODY)
    await asyncio.gather(*crowd)
    asking.close()
    marks = quantiles([moment - began for moment in came], n=100)
    who = f"{len(came):,} of {size:,} clients on one session"
    return [
        Figure(name="told everybody, p50", value=marks[49], unit="s", detail=who),
        Figure(name="told everybody, p99", value=marks[98], unit="s", detail="from the request to the first frame"),
        Figure(
            name="memory per client",
            value=(memory - before) / size / 1024,
            unit="KiB",
            detail=f"server {memory >> 20} MiB",
        ),
        Figure(name="opened", value=size / opened, unit="per s", detail=f"all of them in {opened:.1f} s"),
    ]


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def _serving(room: Path) -> Iterator[Served]:
    plenty = {"STREAMS": "20000", "STREAMS_PER_OWNER": "20000", "STREAMS_PER_TOKEN": "20000", "LOG_LEVEL": "error"}
    fast = {"REQUESTS_PER_SECOND": "1e6", "REQUEST_BURST": "1000000", "HEARTBEAT_SECONDS": "600"}
    settings = {f"BACKSTAY_{name}": value for name, value in (plenty | fast).items()}
    command = [str(Path(sys.executable).with_name("backstay")), "serve", "--port", "0", "--json"]
    database = room / "served.db"
    process = subprocess.Popen(
        [*command, "--db", str(database), "--agent", "benchmarks.server:AGENT"],
        env=os.environ | settings,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        secret = new_secret()
        with open_store(database) as store:
            store.add_token(owner="local", name="benchmark", hash=digest(secret))
        yield Served(int(told["url"].rstrip("/").rpartition(":")[2]), process.pid, secret)
    finally:
        process.terminate()
        process.wait()
