"""Apps of several processes on one file: each sees the commits of others without polling; a lost hint costs a poll.

An app that polls once an hour sees nothing by polling during a test.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import backstay
from backstay import Address, Timing
from backstay.model.event import SessionRenamed
from backstay.model.turn import Completed
from backstay.runtime.session_handle import Session
from tests.crash.worker_processes import PROCESSES, WorkerProcesses, die
from tests.runtime_processes.turn_in_child import echo, listening

CHAT = Address.chat("telegram", "dm", chat="42")
HOURLY = Timing(poll=3_600)
TITLES = ("one", "two", "three")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store lies."""
    return tmp_path / "chat.db"


@pytest.fixture(scope="module")
def other() -> Iterator[WorkerProcesses]:
    """Another process."""
    with WorkerProcesses(1) as workers:
        yield workers


def sockets(path: Path) -> list[Path]:
    return list(Path(f"{path}.locks").glob("wake_*"))


def await_socket(path: Path) -> Path:
    """The first socket, once it is there."""
    while not (found := sockets(path)):
        os.sched_yield()
    return found[0]


def rename(rank: int, path: Path, *, notify: bool) -> None:
    asyncio.run(_rename(path, notify=notify))


async def _rename(path: Path, *, notify: bool) -> None:
    async with backstay.open(path, timing=HOURLY, notify=notify) as app:
        session = await app.session(CHAT)
        for title in TITLES:
            await session.rename(title)


def ask(rank: int, path: Path) -> Completed:
    return asyncio.run(_ask(path))


async def _ask(path: Path) -> Completed:
    async with backstay.open(path, timing=HOURLY) as app:
        outcome = await (await (await app.session(CHAT)).send("hello", allow_unserved=True)).outcome()
        assert isinstance(outcome, Completed)
        return outcome


def serve_and_die(path: Path) -> None:
    asyncio.run(_serve_and_die(path))


async def _serve_and_die(path: Path) -> None:
    async with backstay.open(path, agent=echo, timing=HOURLY) as app:
        await (await (await app.session(CHAT)).send("hello")).outcome()
        await asyncio.to_thread(await_socket, path)
        die()


@asynccontextmanager
async def following(session: Session) -> AsyncIterator["asyncio.Task[list[str | None]]"]:
    """Collects the names of the session up to the last one."""

    async def names() -> list[str | None]:
        found: list[str | None] = []
        async with listening(session.follow()) as events:
            async for event in events:
                if isinstance(event.body, SessionRenamed):
                    found.append(event.body.title)
                    if event.body.title == TITLES[-1]:
                        break
        return found

    yield asyncio.create_task(names())


async def test_a_follower_learns_of_a_commit_of_another_process_without_polling(
    path: Path, other: WorkerProcesses
) -> None:
    async with backstay.open(path, timing=HOURLY) as app, following(await app.session(CHAT)) as names:
        await asyncio.to_thread(other.all, rename, path, notify=True)
        result = await names

    assert result == list(TITLES)


async def test_a_turn_sent_by_one_process_runs_in_another_without_polling(path: Path, other: WorkerProcesses) -> None:
    async with backstay.open(path, agent=echo, timing=HOURLY):
        result = [await asyncio.to_thread(other.all, ask, path) for _ in range(3)]

    assert result == [[Completed()]] * 3


@pytest.mark.parametrize("lost", ["never sent", "socket removed", "not received"])
async def test_nothing_is_missed_when_hints_are_lost(path: Path, other: WorkerProcesses, lost: str) -> None:
    hears = lost != "not received"
    async with backstay.open(path, notify=hears) as app, following(await app.session(CHAT)) as names:
        if lost == "socket removed":
            (await asyncio.to_thread(await_socket, path)).unlink()
        await asyncio.to_thread(other.all, rename, path, notify=lost != "never sent")
        result = await names

    assert result == list(TITLES)


async def test_an_app_without_notifications_has_no_socket(path: Path) -> None:
    async with backstay.open(path, agent=echo, notify=False) as app:
        await (await (await app.session(CHAT)).send("hello")).outcome()
        assert sockets(path) == []


async def test_the_sockets_of_killed_apps_do_not_disturb_others(path: Path, other: WorkerProcesses) -> None:
    for _ in range(3):
        killed = PROCESSES.Process(target=serve_and_die, args=(path,))
        killed.start()
        await asyncio.to_thread(killed.join)
    assert sockets(path)

    async with backstay.open(path, agent=echo, timing=HOURLY) as app:
        result = await asyncio.to_thread(other.all, ask, path)
        (own,) = sockets(path)
        await (await app.session(CHAT)).rename("one")

    assert result == [Completed()]
    assert not own.exists()
