"""A turn reads only messages that this process has not read yet, and its agent sees exactly the stored ones."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import backstay
from backstay import App, NewMessage, Session, Text, open_store
from backstay.agents import AgentTurn
from backstay.model.content import Body
from backstay.model.history.projection import readable
from backstay.runtime.async_store import AsyncStore
from backstay.runtime.turns.history_cache import HistoryCache
from benchmarks.instruments.sqlite_counters import counted
from tests.databases import Place

ME = "local"


def comparing(path: Place, differences: list[str]) -> Callable[[AgentTurn], AsyncIterator[Body]]:
    """An agent that compares the messages it is given with the stored ones."""

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        with open_store(path) as store:
            stored = readable(store.messages(turn.session, owner=ME).messages)
        if turn.messages != stored:
            differences.append(f"{[one.text for one in turn.messages]} instead of {[one.text for one in stored]}")
        yield Text(f"answer {len(stored)}")

    return agent


def exchange(number: int) -> list[NewMessage]:
    return [NewMessage(role="user", parts=(Text(f"asked elsewhere {number}"),))]


async def send(app: App, session: Session) -> None:
    await (await session.send("hello")).outcome()


async def undo(app: App, session: Session) -> None:
    await session.undo()


async def redo(app: App, session: Session) -> None:
    await session.redo()


async def retry(app: App, session: Session) -> None:
    await (await session.retry()).outcome()


async def edit(app: App, session: Session) -> None:
    message = next(one for one in await session.messages() if one.role == "user")
    await (await session.edit(message.id, "edited")).outcome()


async def record(app: App, session: Session) -> None:
    await session.record(exchange(1))


async def compact(app: App, session: Session) -> None:
    await session.compact(keep=0)


ACTIONS = [send, undo, redo, retry, edit, record, compact]


@settings(max_examples=25)
@given(actions=st.lists(st.sampled_from(ACTIONS), min_size=3, max_size=12))
def test_an_agent_sees_the_stored_messages_after_any_changes(
    tmp_path_factory: pytest.TempPathFactory, actions: list[Callable[[App, Session], Awaitable[None]]]
) -> None:
    path, differences = tmp_path_factory.mktemp("history") / "chat.db", list[str]()

    async def play() -> None:
        async with backstay.open(path, agent=comparing(path, differences)) as app:
            session = await app.session()
            for action in actions:
                await send(app, session)
                try:
                    await action(app, session)
                except (backstay.BackstayError, StopIteration, RuntimeError):
                    continue  # There is nothing to undo, redo, edit or compact.
                await send(app, session)

    asyncio.run(play())
    assert differences == []


async def test_an_agent_sees_messages_that_another_process_stored(path: Place) -> None:
    differences = list[str]()
    async with backstay.open(path, agent=comparing(path, differences)) as app:
        session = await app.session()
        for number in range(3):
            await send(app, session)
            with open_store(path) as store:
                store.record(session.id, exchange(number), owner=ME)
        await send(app, session)
        assert [one.text for one in await session.messages()][-2] == "hello"
    assert differences == []


@pytest.mark.engines("sqlite")
async def test_messages_that_the_database_lost_are_not_shown(path: Path) -> None:
    differences = list[str]()
    async with backstay.open(path, agent=comparing(path, differences)) as app:
        session = await app.session()
        await send(app, session)
        # As after a crash that lost commits: another message now has the position of the last one that was read.
        with closing(apsw.Connection(str(path))) as connection:
            for (trigger,) in list(connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")):
                connection.execute(f"DROP TRIGGER {trigger}")  # names of the schema
            last = "SELECT id FROM messages ORDER BY position DESC LIMIT 1"
            connection.execute(f"UPDATE messages SET id = 'msg_' || substr(id, 5, 25) || 'x' WHERE id = ({last})")
        await send(app, session)
    assert differences == []


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize(("most_bytes", "is_kept"), [(1 << 20, True), (1 << 10, False)], ids=["fits", "too large"])
async def test_a_window_is_kept_up_to_a_size(path: Path, most_bytes: int, is_kept: bool) -> None:
    with counted() as counters:
        blocking = open_store(path)
        store = AsyncStore(blocking)
        session = blocking.create(owner=ME).id
        blocking.record(session, exchange(1) * 500, owner=ME)
        opened = blocking.submit(session, "hello", owner=ME, start=True).opened
        assert opened is not None
        cache = HistoryCache(store, most_bytes)
        start = counters.copy()
        first = await cache.read(opened)
        middle = counters.copy()
        second = await cache.read(opened)
        end = counters.copy()
        assert first == second == blocking.messages(session, owner=ME).messages
        assert (end.since(middle).steps < middle.since(start).steps / 10) is is_kept
        await store.close()


@pytest.mark.engines("sqlite")
async def test_a_turn_costs_the_same_in_a_long_session(tmp_path: Path) -> None:
    steps = {}
    for length in (100, 3_000):
        with counted() as counters:
            async with backstay.open(tmp_path / f"{length}.db", agent=comparing_nothing) as app:
                session = await app.session()
                for _ in range(0, length, 100):
                    await session.record(exchange(1) * 100)
                for _ in range(3):
                    await send(app, session)
                before = counters.copy()
                for _ in range(5):
                    await send(app, session)
                steps[length] = counters.since(before)
    assert steps[3_000].steps <= steps[100].steps * 1.25
    assert steps[3_000].log_bytes <= steps[100].log_bytes * 1.25


async def comparing_nothing(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text("ok")
