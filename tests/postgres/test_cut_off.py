"""A host is cut off from the database: it stops by itself in time, others take over, and afterwards it works on."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from backstay import open_store
from backstay.errors import StoreUnavailable
from backstay.model.event import SessionRenamed
from backstay.model.turn import Completed, Interrupted
from backstay.runtime.session import SessionHandle
from tests.postgres.speaker import ME, PATIENCE
from tests.postgres.stage import busy, host, still_works
from tests.runtime_processes.programs import CHAT
from tests.runtime_processes.stage import echo, listening, play, said
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy

LEASE = 15.0
# Waited for in full; a host that is well renews it every third of it, also on a busy machine.
SHORT = 8.0


def cut_off(network: Proxy, how: str) -> None:
    """Part a host from the database: by a port that is closed, or by a cable that swallows everything."""
    (network.refuse if how == "refused" else network.stall)()


def reunite(network: Proxy, how: str) -> None:
    """Undo it. What lay in a pulled cable is lost with it."""
    network.cut()
    (network.accept if how == "refused" else network.go_on)()


@pytest.mark.parametrize("how", ["refused", "stalled"])
def test_a_host_that_is_cut_off_stops_its_turn_before_its_lease_lapses(
    postgres: Postgres, name: str, network: Proxy, how: str
) -> None:
    async def story() -> list[tuple[str, str]]:
        async with busy(postgres.url(name), network.url(name), LEASE) as stage:
            cut_off(network, how)
            await stage.other.heard("stopped", "first")
            # Whoever looks ends a turn whose lease has lapsed: this one's has not.
            assert (await stage.turn.read()).state == "running"

            assert isinstance(await stage.turn.outcome(), Interrupted)
            reunite(network, how)
            await asyncio.to_thread(still_works, stage.other, "second")
            return await said(stage.session)

    assert play(story()) == [("user", "first"), ("assistant", "one …"), ("user", "second"), ("assistant", "awake")]


@pytest.mark.parametrize("how", ["refused", "stalled"])
def test_what_waits_behind_a_host_that_is_cut_off_is_answered_by_another(
    postgres: Postgres, name: str, any_network: Proxy, how: str
) -> None:
    network = any_network

    async def story() -> list[tuple[str, str]]:
        async with busy(postgres.url(name), network.url(name), SHORT) as stage:
            second = await stage.session.send("second")
            cut_off(network, how)
            async with host(postgres.url(name), SHORT, echo):
                assert await second.outcome() == Completed()
                assert isinstance(await stage.turn.outcome(), Interrupted)

            stage.other.order("first", "say", "too late")
            reunite(network, how)
            await asyncio.to_thread(still_works, stage.other, "third")
            return await said(stage.session)

    assert play(story()) == [
        ("user", "first"),
        ("assistant", "one …"),
        ("user", "second"),
        ("assistant", "re: second"),
        ("user", "third"),
        ("assistant", "awake"),
    ]


@pytest.mark.parametrize("how", ["refused", "stalled"])
def test_a_caller_on_a_host_that_is_cut_off_is_told_so_and_can_go_on_afterwards(
    postgres: Postgres, name: str, network: Proxy, how: str
) -> None:
    with open_store(network.url(name), wait_seconds=3.0) as store, ThreadPoolExecutor() as threads:
        session = store.create(owner=ME).id
        cut_off(network, how)
        writing = threads.submit(store.submit, session, "hello?", owner=ME, request_id="once")
        reading = threads.submit(store.session, session, owner=ME)

        assert isinstance(writing.exception(PATIENCE), StoreUnavailable)
        assert isinstance(reading.exception(PATIENCE), StoreUnavailable)
        reunite(network, how)

        first = store.submit(session, "hello?", owner=ME, request_id="once")
        with open_store(postgres.url(name)) as other:
            assert [turn.id for turn in other.waiting(session, owner=ME)] == [first.turn.id]


def test_who_follows_sees_without_a_gap_what_was_said_while_the_network_was_away(
    postgres: Postgres, name: str, network: Proxy
) -> None:
    async def story() -> list[int]:
        async with host(network.url(name), 60.0) as here, host(postgres.url(name), 60.0, echo) as there:
            following = asyncio.create_task(_follow(await here.session(CHAT)))
            elsewhere = await there.session(CHAT)
            for text in ("one", "two", "three"):
                network.cut()
                await (await elsewhere.send(text)).outcome()
            await elsewhere.rename("the end")
            return await following

    numbers = play(story())

    assert numbers == list(range(1, len(numbers) + 1))


async def _follow(session: SessionHandle) -> list[int]:
    """The numbers of all events until the session has a name; after a fault, from where it was."""
    numbers: list[int] = []
    while True:
        try:
            async with listening(session.follow(numbers[-1] if numbers else 0)) as story:
                async for event in story:
                    numbers.append(event.number)
                    if isinstance(event.body, SessionRenamed):
                        return numbers
        except StoreUnavailable:
            continue
