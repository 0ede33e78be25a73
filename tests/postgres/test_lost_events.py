"""The server crashes and loses words that it had stored without a sync: their worker writes them again."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple
from zlib import crc32

import psycopg
import pytest

import backstay
from backstay import Address, Store, Text, Thought, Timing, open_store
from backstay.agents.port import AgentTurn
from backstay.errors import HistoryChanged, NotFound
from backstay.model.content import Body, ToolCall, ToolResult
from backstay.model.event import Event, TailLost, TextDelta, ThoughtDelta
from backstay.model.ids import SessionId
from backstay.model.turn import Completed, Interrupted, OpenTurn
from backstay.runtime.turn_handle import Turn
from tests.databases import let_leases_lapse
from tests.effort import sample
from tests.postgres.acknowledged_writer import ME, retry_while_leased
from tests.postgres_servers.postgres import FORGETFUL, Home, Postgres
from tests.postgres_servers.standby_pair import StandbyPair
from tests.runtime.controlled_agents import Gate
from tests.runtime_processes.turn_in_child import until_said

# Longer than any of these tests: no lease is renewed, whose sync would keep the output, and none lapses.
LEASE = 3600.0


class Loss(NamedTuple):
    """A database, and a block after which all of its commits are lost that did not wait for the disk."""

    url: str
    losing: Callable[[], AbstractContextManager[None]]
    recover: Callable[[], None]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Commits are lost by a crash or by a failover. `make test` tries one of them with each test, `make crash` both."""
    if "loss" in metafunc.fixturenames:
        ways = sample(("crash", "failover"), 1, first=crc32(metafunc.function.__name__.encode()))
        metafunc.parametrize("loss", ways, indirect=True)


@pytest.fixture
def loss(request: pytest.FixtureRequest, postgres_home: Home) -> Iterator[Loss]:
    if request.param == "crash":
        with Postgres(postgres_home, settings=FORGETFUL) as server:
            yield Loss(server.url(server.database()), server.losing_unsynced, server.start)
    else:
        with StandbyPair(postgres_home, settings=FORGETFUL) as pair:
            yield Loss(pair.url(pair.primary.database()), pair.losing_unsynced, pair.promote)


def test_output_lost_by_a_crashed_server_is_written_again(loss: Loss) -> None:
    with open_store(loss.url, lease_seconds=LEASE) as store:
        proof = _start(store)
        with loss.losing():
            proof = store.checkpoint(proof, [Text("one ")]).open
            proof = store.checkpoint(proof, [Thought("hm"), Text("two ")]).open
        loss.recover()
        assert retry_while_leased(store.session, proof.session, owner=ME).last_event < proof.event, (
            "the server lost them"
        )

        proof = store.checkpoint(proof, [Text("three ")]).open
        finished = store.finish(proof, Completed(), bodies=[Text("four")])

        assert finished.turn.outcome == Completed()
        assert finished.unbroken
        [answer] = store.messages(proof.session, owner=ME).messages[1:]
        assert answer.parts == (Text("one "), Thought("hm"), Text("two three four"))
        assert not answer.partial
        assert [type(event.body) for event in _words(store, proof.session)] == [
            TailLost,
            TextDelta,
            ThoughtDelta,
            TextDelta,
            TextDelta,
            TextDelta,
        ]


@pytest.mark.parametrize("write", ["renew", "tool", "finish"])
def test_each_write_of_a_worker_restores_events_that_the_server_lost(loss: Loss, write: str) -> None:
    with open_store(loss.url, lease_seconds=LEASE) as store:
        proof = _start(store)
        with loss.losing():
            proof = store.checkpoint(proof, [Text("one ")]).open
        loss.recover()

        if write == "renew":
            proof = retry_while_leased(store.renew, proof).open
            assert [event.body for event in _words(store, proof.session)][1:] == [TextDelta("one ")]
        if write == "tool":
            proof = retry_while_leased(store.checkpoint, proof, [ToolCall("1", "look"), ToolResult("1", "dark")]).open
        retry_while_leased(store.finish, proof, Completed(), bodies=[Text("two")])

        said = store.messages(proof.session, owner=ME).messages
        assert "".join(message.text for message in said[1:] if message.role == "assistant") == "one two"
        assert not any(message.partial for message in said)


def test_output_that_is_lost_twice_is_stored_once(loss: Loss) -> None:
    with open_store(loss.url, lease_seconds=LEASE) as store:
        proof = _start(store)
        for word in ("one ", "two ", "three "):
            with loss.losing():
                proof = retry_while_leased(store.checkpoint, proof, [Text(word)]).open
            loss.recover()
        retry_while_leased(store.finish, proof, Completed())

        assert store.messages(proof.session, owner=ME).messages[-1].text == "one two three "


def test_readers_of_lost_output_get_a_resync(loss: Loss) -> None:
    with open_store(loss.url, lease_seconds=LEASE) as store:
        proof = _start(store)
        kept = _story(store, proof.session)[-1].cursor
        with loss.losing():
            for word in ("one ", "two ", "three "):
                proof = store.checkpoint(proof, [Text(word)]).open
            seen = [event.cursor for event in _words(store, proof.session)]
        loss.recover()
        # Another handle writes before the worker does: this event gets the number of a lost one.
        renamed = retry_while_leased(store.rename, proof.session, "Soup", owner=ME).last_event
        assert renamed == seen[0].number

        store.checkpoint(proof, [Text("four")])

        assert len(seen) == 3
        assert {store.events_after(proof.session, cursor, owner=ME).gap for cursor in seen} == {"resync"}
        assert store.events_after(proof.session, kept, owner=ME).gap is None


async def test_an_agent_that_continues_after_a_crash_completes_with_all_output(loss: Loss) -> None:
    gates = [Gate(), Gate()]

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        await gates[0].stop_here()
        yield Text("one ")
        yield Text("two ")
        await gates[1].stop_here()
        yield Text("three")

    def crash(said: Callable[[], None]) -> None:
        with loss.losing():
            said()
        loss.recover()

    timing = Timing(flush=0, retry=0.05)
    async with backstay.open(loss.url, agent=agent, lease_seconds=LEASE, timing=timing) as app:
        session = await app.session(Address.chat("matrix", "group", chat="kitchen"))
        turn = await session.send("count")
        await gates[0].reached()
        loop = asyncio.get_running_loop()

        def speak() -> None:
            loop.call_soon_threadsafe(gates[0].open)
            asyncio.run_coroutine_threadsafe(until_said(turn, "one two "), loop).result()

        await asyncio.to_thread(crash, speak)
        gates[1].open()

        assert await turn.outcome() == Completed()
        [_, answer] = await session.messages()
        assert (answer.text, answer.partial) == ("one two three", False)
        assert [event async for event in turn.events() if isinstance(event.body, TailLost)], "words were lost"


def test_a_version_from_before_a_crash_does_not_come_back(loss: Loss) -> None:
    with open_store(loss.url, lease_seconds=LEASE) as store:
        proof = _start(store)
        before = set()
        with loss.losing():
            for word in ("one ", "two ", "three "):
                proof = store.checkpoint(proof, [Text(word)]).open
                before.add(store.version())
        loss.recover()
        after = {retry_while_leased(store.version)}
        for title in map(str, range(10)):
            store.rename(proof.session, title, owner=ME)
            after.add(store.version())

        assert len(before) == 3
        assert before.isdisjoint(after)


async def test_a_follower_of_a_session_that_a_failover_lost_is_notified(empty_database: str) -> None:
    async with backstay.open(empty_database) as app:
        session = await app.session()
        following = session.follow()
        await anext(following)
        nothing_more = asyncio.ensure_future(anext(following))
        with psycopg.connect(empty_database) as database:
            database.execute("TRUNCATE sessions, commits CASCADE")

        with pytest.raises(NotFound):
            await nothing_more


async def test_a_waiter_learns_of_the_end_after_output_and_worker_are_lost(loss: Loss) -> None:
    with open_store(loss.url, lease_seconds=LEASE) as worker:
        async with backstay.open(loss.url, notify=False) as app:
            proof = await asyncio.to_thread(_start, worker, owner="local")
            turn = await app.turn(proof.id)
            heard = asyncio.Event()
            reading = asyncio.create_task(_read(turn, "one two three ", heard))
            waiting = asyncio.create_task(turn.outcome())

            def lose_words() -> None:
                with loss.losing():
                    last = proof
                    for word in ("one ", "two ", "three "):
                        last = worker.checkpoint(last, [Text(word)]).open
                    asyncio.run_coroutine_threadsafe(heard.wait(), loop).result()
                loss.recover()

            loop = asyncio.get_running_loop()
            await asyncio.to_thread(lose_words)
            await asyncio.to_thread(let_leases_lapse, loss.url, os.getpid())

            assert isinstance(await waiting, Interrupted)
            with pytest.raises(HistoryChanged):
                await reading


async def _read(turn: Turn, words: str, heard: asyncio.Event) -> None:
    """Read the turn to its end; say when these words have been read."""
    said = ""
    async for event in turn.events():
        said += event.body.text if isinstance(event.body, TextDelta) else ""
        if said == words:
            heard.set()


def _start(store: Store, owner: str = ME) -> OpenTurn:
    opened = store.submit(store.create(owner=owner).id, "count", owner=owner, start=True).opened
    assert opened is not None, "nobody else speaks here"
    return opened


def _story(store: Store, session: SessionId) -> list[Event]:
    return list(store.events_after(session, owner=ME, limit=1000).events)


def _words(store: Store, session: SessionId) -> list[Event]:
    """The text in a session's events, and where some of it was lost."""
    return [event for event in _story(store, session) if isinstance(event.body, TextDelta | ThoughtDelta | TailLost)]
