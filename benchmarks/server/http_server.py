"""The cost of HTTP: turns and their acceptance against the runtime alone, and many clients of one session."""

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
from typing import NamedTuple, Self

import backstay
from backstay.server.auth.authenticator import digest, new_secret
from backstay.store import open_store
from benchmarks.instruments.figure import Figure
from benchmarks.instruments.sample_turns import DELTAS, QUESTION
from benchmarks.instruments.scratch_folders import on_disk
from benchmarks.runtime.stepped_app import answering_with
from benchmarks.server.http_client import HttpClient

AGENT = answering_with(DELTAS)
CLIENTS = (1, 16, 64)
TURNS = 256
# The number of turns with one server before the other one runs.
BLOCK = 8
MANY = 10_000
BODY = json.dumps({"text": QUESTION}).encode()


class Run(NamedTuple):
    """The seconds of one run: for all turns, and for each acceptance."""

    seconds: float
    accepted: list[float]


class Served(NamedTuple):
    """A server in its own process."""

    port: int
    pid: int
    token: str


def figures() -> Iterator[Figure]:
    """One client against the floor, acceptance and turns per second for a few clients, then many clients."""
    with on_disk() as folder, _serving(folder) as served, _floor(folder) as floor:
        yield from asyncio.run(_above_floor(served, floor))
    for clients in CLIENTS:
        with on_disk() as folder:
            alone = asyncio.run(_alone(folder / "alone.db", clients))
        with on_disk() as folder, _serving(folder) as served:
            asyncio.run(_over_http(served, clients, turns=clients))
            served_run = asyncio.run(_over_http(served, clients))
        yield from _compared(clients, served_run, alone)
    with on_disk() as folder, _serving(folder) as served:
        yield from asyncio.run(_many_followers(served, int(os.environ.get("BACKSTAY_CLIENTS", MANY))))


def _compared(clients: int, ours: Run, alone: Run) -> Iterator[Figure]:
    mine, theirs = median(ours.accepted) * 1000, median(alone.accepted) * 1000
    who = f"{clients} client{'s' if clients > 1 else ''}"
    detail = f"p50 {mine:.2f} ms, the runtime {theirs:.2f} ms"
    yield Figure(name=f"accepted durably over HTTP / runtime, {who}", value=mine / theirs, detail=detail)
    rate, rate_alone = TURNS / ours.seconds, TURNS / alone.seconds
    detail = f"{rate:,.0f} turns/s, the runtime {rate_alone:,.0f}"
    yield Figure(name=f"time per turn over HTTP / runtime, {who}", value=rate_alone / rate, detail=detail)


# --- the floor ------------------------------------------------------------------------------------------------------


class Client:
    """One client with a session, the stream of its events, and how long its turns took."""

    def __init__(self, requests: HttpClient, stream: HttpClient, session: str) -> None:
        self._asking, self._hearing, self._path = requests, stream, f"/api/sessions/{session}/turns"
        self._frames = stream.follow(session)
        self.accepted: list[float] = []
        self.ended: list[float] = []

    @classmethod
    async def of(cls, served: Served) -> Self:
        """Connect, and create the session."""
        requests, stream = (
            await HttpClient.connect(served.port, served.token),
            await HttpClient.connect(served.port, served.token),
        )
        return cls(requests, stream, (await requests.post("/api/sessions"))["id"])

    async def turns(self, number: int) -> None:
        """Send a message and wait for the end of its turn, this number of times."""
        for _ in range(number):
            began = perf_counter()
            await self._asking.post(self._path, BODY)
            self.accepted.append(perf_counter() - began)
            async for frame in self._frames:
                if b'"turn_ended"' in frame:
                    break
            self.ended.append(perf_counter() - began)

    def close(self) -> None:
        """Disconnect."""
        self._asking.close()
        self._hearing.close()


async def _above_floor(served: Served, floor: Served) -> list[Figure]:
    """The same turns with both servers, alternately, so that both have the same disk and load."""
    ours, least = await Client.of(served), await Client.of(floor)
    spent = [_processor_seconds(server.pid) for server in (served, floor)]
    for _ in range(TURNS // BLOCK):
        for client in (ours, least):
            await client.turns(BLOCK)
    spent = [_processor_seconds(server.pid) - before for server, before in zip((served, floor), spent, strict=True)]
    figures = [
        _ratio("accepted over HTTP / floor, 1 client", ours.accepted, least.accepted),
        _ratio("turn over HTTP / floor, 1 client", ours.ended, least.ended),
        _ratio("processor time of a turn over HTTP / floor", [spent[0] / TURNS], [spent[1] / TURNS]),
    ]
    for client in (ours, least):
        client.close()
    return figures


def _ratio(name: str, ours: list[float], least: list[float]) -> Figure:
    mine, theirs = median(ours) * 1000, median(least) * 1000
    return Figure(name=name, value=mine / theirs, detail=f"p50 {mine:.2f} ms, the floor {theirs:.2f} ms")


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _floor(folder: Path) -> Iterator[Served]:
    secret = new_secret()
    command = [sys.executable, "-m", "benchmarks.server.http_floor", str(folder / "floor.db"), secret]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield Served(int(process.stdout.readline()), process.pid, secret)
    finally:
        process.terminate()
        process.wait()


# --- turns ----------------------------------------------------------------------------------------------------------


async def _alone(path: Path, clients: int) -> Run:
    accepted: list[float] = []

    async def run_turns(app: backstay.App, turns: int) -> None:
        session = await app.session()
        for _ in range(turns):
            began = perf_counter()
            turn = await session.send(QUESTION)
            accepted.append(perf_counter() - began)
            await turn.outcome()

    async with backstay.open(path, agent=AGENT) as app:
        began = perf_counter()
        await asyncio.gather(*(run_turns(app, TURNS // clients) for _ in range(clients)))
        return Run(perf_counter() - began, accepted)


async def _over_http(served: Served, clients: int, turns: int = TURNS) -> Run:
    accepted: list[float] = []

    async def run_turns(each: int) -> None:
        requests, stream = (
            await HttpClient.connect(served.port, served.token),
            await HttpClient.connect(served.port, served.token),
        )
        session = (await requests.post("/api/sessions"))["id"]
        frames = stream.follow(session)
        for _ in range(each):
            began = perf_counter()
            await requests.post(f"/api/sessions/{session}/turns", BODY)
            accepted.append(perf_counter() - began)
            async for frame in frames:
                if b'"turn_ended"' in frame:
                    break
        requests.close()
        stream.close()

    began = perf_counter()
    await asyncio.gather(*(run_turns(turns // clients) for _ in range(clients)))
    return Run(perf_counter() - began, accepted)


# --- many clients ---------------------------------------------------------------------------------------------------


async def _many_followers(served: Served, size: int) -> list[Figure]:
    requests = await HttpClient.connect(served.port, served.token)
    session = (await requests.post("/api/sessions"))["id"]
    requests.close()
    before = _resident(served.pid)
    came: list[float] = []
    ready = asyncio.Semaphore(0)

    async def follow() -> None:
        http = await HttpClient.connect(served.port, served.token)
        async for frame in http.follow(session):
            if b"session_created" in frame:
                ready.release()
            if b'"turn_started"' in frame:
                came.append(perf_counter())
                break
        http.close()

    began = perf_counter()
    followers = []
    for place in range(size):
        followers.append(asyncio.create_task(follow()))
        if place % 100 == 99:
            await asyncio.sleep(0)
            for _ in range(100):
                await ready.acquire()
    opened, memory = perf_counter() - began, _resident(served.pid)
    requests = await HttpClient.connect(served.port, served.token)  # the first one was idle for too long
    began = perf_counter()
    await requests.post(f"/api/sessions/{session}/turns", BODY)
    await asyncio.gather(*followers)
    requests.close()
    marks = quantiles([moment - began for moment in came], n=100)
    who = f"{len(came):,} of {size:,} clients on one session"
    return [
        Figure(name="event at all clients, p50", value=marks[49], unit="s", detail=who),
        Figure(
            name="event at all clients, p99", value=marks[98], unit="s", detail="from the request to the first frame"
        ),
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
def _serving(folder: Path) -> Iterator[Served]:
    plenty = {"STREAMS": "20000", "STREAMS_PER_OWNER": "20000", "STREAMS_PER_TOKEN": "20000", "LOG_LEVEL": "error"}
    fast = {"REQUESTS_PER_SECOND": "1e6", "REQUEST_BURST": "1000000", "HEARTBEAT_SECONDS": "600"}
    settings = {f"BACKSTAY_{name}": value for name, value in (plenty | fast).items()}
    command = [str(Path(sys.executable).with_name("backstay")), "serve", "--port", "0", "--json"]
    database = folder / "served.db"
    process = subprocess.Popen(
        [*command, "--db", str(database), "--agent", "benchmarks.server.http_server:AGENT"],
        env=os.environ | settings,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        secret = new_secret()
        with open_store(database) as store:
            store.add_token(owner="local", name="benchmark", hash=digest(secret))
        yield Served(int(ready["url"].rstrip("/").rpartition(":")[2]), process.pid, secret)
    finally:
        process.terminate()
        process.wait()
