"""Hints: followers see commits of other processes at once; without hints they poll, and miss nothing.

An app that polls once an hour sees nothing by polling during a test.
"""

import asyncio
import math
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest
from psycopg.rows import TupleRow

import backstay
from backstay import Address, App, Timing, open_store
from backstay.agents.adapters import AgentLike
from backstay.model.event import SessionRenamed
from backstay.model.turn import Completed
from backstay.runtime.session_handle import Session
from tests.crash.worker_processes import PATIENCE
from tests.postgres_servers.faulty_proxy import Proxy
from tests.postgres_servers.pgbouncer import Pgbouncer
from tests.postgres_servers.postgres import Postgres
from tests.runtime_processes.turn_in_child import echo, listening

CHAT = Address.chat("telegram", "dm", chat="42")
HOURLY = Timing(poll=3_600)
AWAIT_LISTENERS = """
DO $$
BEGIN
    WHILE (SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND query ~ '^LISTEN') <> {number} LOOP
        PERFORM pg_sleep(0.01), pg_stat_clear_snapshot();
    END LOOP;
END $$
"""


@asynccontextmanager
async def an_app(
    url: str, *, agent: AgentLike | None = None, timing: Timing | None = None, notify: bool = True
) -> AsyncIterator[App]:
    """An app with its own connections, like one on another machine."""
    async with backstay.open(url, agent=agent, timing=timing, notify=notify) as app:
        yield app


async def names_until(session: Session, last: str) -> list[str | None]:
    """The names of the session, one after the other."""
    names = []
    async with listening(session.follow()) as followed:
        async for event in followed:
            if isinstance(event.body, SessionRenamed):
                names.append(event.body.title)
                if event.body.title == last:
                    return names
    raise AssertionError("the story has no end")


async def listeners(postgres: Postgres, name: str, number: int) -> None:
    """Wait until this number of connections listens for hints in this database."""
    await asyncio.to_thread(postgres.query, AWAIT_LISTENERS.format(name=name, number=number))


async def test_a_follower_learns_of_a_commit_elsewhere_without_polling(postgres: Postgres, name: str) -> None:
    url = postgres.url(name)
    async with an_app(url, timing=HOURLY) as here, an_app(url, timing=HOURLY) as there:
        following = asyncio.create_task(names_until(await here.session(CHAT), "three"))
        elsewhere = await there.session(CHAT)
        for title in ("one", "two", "three"):
            await elsewhere.rename(title)
        result = await following

    assert result == ["one", "two", "three"]


async def test_a_worker_learns_of_a_waiting_turn_without_polling(postgres: Postgres, name: str) -> None:
    url = postgres.url(name)
    async with an_app(url, timing=HOURLY) as server_port, an_app(url, agent=echo, timing=HOURLY):
        turn = await (await server_port.session(CHAT)).send("hello", allow_unserved=True)
        result = await turn.outcome()

    assert result == Completed()


async def test_a_lost_listener_reconnects_and_misses_nothing(postgres: Postgres, name: str, network: Proxy) -> None:
    url = postgres.url(name)
    async with an_app(network.url(name), timing=HOURLY) as here, an_app(url, notify=False) as there:
        following = asyncio.create_task(names_until(await here.session(CHAT), "three"))
        elsewhere = await there.session(CHAT)
        for title in ("one", "two", "three"):
            await listeners(postgres, name, 1)
            network.refuse()
            await listeners(postgres, name, 0)
            # There is no hint for this commit: it is seen when the connection is back.
            await elsewhere.rename(title)
            network.accept()
        result = await following

    assert result == ["one", "two", "three"]


@pytest.mark.parametrize("notify", [True, False], ids=["hinted", "unhinted"])
async def test_events_are_seen_without_notifications(postgres: Postgres, name: str, notify: bool) -> None:
    url = postgres.url(name)
    async with an_app(url, notify=notify) as here:
        following = asyncio.create_task(names_until(await here.session(CHAT), "two"))
        with open_store(url) as store:
            session = store.resolve(CHAT, owner="local").session.id
            for title in ("one", "two"):
                store.rename(session, title, owner="local")
        result = await following

    assert result == ["one", "two"]


async def test_behind_a_pooler_changes_are_seen_by_polling(postgres: Postgres, name: str, pool: Pgbouncer) -> None:
    url = pool.url(name)
    async with an_app(url) as here, an_app(url, agent=echo) as there:
        session, elsewhere = await here.session(CHAT), await there.session(CHAT)
        following = asyncio.create_task(names_until(session, "two"))
        outcome = await (await session.send("hello")).outcome()
        for title in ("one", "two"):
            await elsewhere.rename(title)
        names = await following
        await listeners(postgres, name, 0)
        result = outcome, names

    assert result == (Completed(), ["one", "two"])


async def test_an_app_that_is_closed_listens_no_more(postgres: Postgres, name: str) -> None:
    url = postgres.url(name)
    async with an_app(url):
        await listeners(postgres, name, 1)
    await listeners(postgres, name, 0)


async def test_a_turn_is_claimed_after_its_session_was_locked_by_a_transaction_that_changed_nothing(
    postgres: Postgres, name: str
) -> None:
    url = postgres.url(name)
    with open_store(url) as store:
        waiting = store.submit(CHAT, "hello", owner="local").turn.id
    with psycopg.connect(url) as locking, psycopg.connect(url, autocommit=True) as looking:
        locking.execute("SELECT 1 FROM sessions FOR UPDATE")
        async with an_app(url, agent=echo, timing=Timing(reap=math.inf)) as app:
            await asyncio.to_thread(_until_many_tries, looking)
            locking.rollback()
            result = await (await app.turn(waiting)).outcome()

    assert result == Completed()


def _until_many_tries(connection: "psycopg.Connection[TupleRow]") -> None:
    """Wait until the app has tried to claim the turn several times: each try takes a transaction id."""
    last_id = "SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint)"
    ((first,),) = connection.execute(last_id).fetchall()
    for _ in range(int(PATIENCE * 100)):
        ((last,),) = connection.execute(last_id).fetchall()
        if last >= first + 10:
            return
        threading.Event().wait(0.01)
    raise AssertionError("the app has stopped trying")
