"""A host is cut off from the database: it stops in time, others take over, and afterwards it works again."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from backstay import open_store
from backstay.errors import StoreUnavailable
from backstay.model.event import SessionRenamed
from backstay.model.turn import Completed, Interrupted
from backstay.runtime.session_handle import Session
from tests.effort import sample
from tests.postgres.acknowledged_writer import ME, PATIENCE, request, retry_while_leased
from tests.postgres.hosts.turn_on_host import busy, host, still_works
from tests.postgres_servers.faulty_proxy import Proxy
from tests.postgres_servers.postgres import Postgres
from tests.runtime_processes.app_programs import CHAT
from tests.runtime_processes.turn_in_child import echo, listening, said

LEASE = 15.0
# The test waits for all of it; a working host renews it after a third, also on a busy machine.
SHORT = 8.0
# Every second one makes a sample with both doors and both faults.
WAYS = [("straight", "refused"), ("straight", "stalled"), ("pooled", "stalled"), ("pooled", "refused")]


def cut_off(network: Proxy, how: str) -> None:
    """Cut a host off from the database: with a closed port, or with a cable that drops everything."""
    (network.refuse if how == "refused" else network.stall)()


def reunite(network: Proxy, how: str) -> None:
    """Undo it. Data in a pulled cable is lost."""
    network.cut()
    (network.accept if how == "refused" else network.go_on)()


@pytest.mark.parametrize("how", ["refused", "stalled"])
async def test_a_host_that_is_cut_off_stops_its_turn_before_its_lease_lapses(
    postgres: Postgres, name: str, network: Proxy, how: str
) -> None:
    async with busy(postgres.url(name), network.url(name), LEASE) as remote:
        cut_off(network, how)
        await remote.other.receive_async("stopped", "first")
        # A reader ends a turn whose lease has lapsed: this one's has not.
        assert (await remote.turn.read()).state == "running"

        assert isinstance(await remote.turn.outcome(), Interrupted)
        reunite(network, how)
        await asyncio.to_thread(still_works, remote.other, "second")
        result = await said(remote.session)

    assert result == [("user", "first"), ("assistant", "one …"), ("user", "second"), ("assistant", "awake")]


@pytest.mark.parametrize(("server_port", "how"), sample(WAYS, 2), indirect=["server_port"])
async def test_turns_waiting_behind_a_partitioned_host_are_answered_by_another(
    postgres: Postgres, name: str, any_network: Proxy, how: str
) -> None:
    network = any_network

    async with busy(postgres.url(name), network.url(name), SHORT) as remote:
        second = await remote.session.send("second")
        cut_off(network, how)
        async with host(postgres.url(name), SHORT, echo):
            assert await second.outcome() == Completed()
            assert isinstance(await remote.turn.outcome(), Interrupted)

        remote.other.send_order("first", "say", "too late")
        reunite(network, how)
        await asyncio.to_thread(still_works, remote.other, "third")
        result = await said(remote.session)

    assert result == [
        ("user", "first"),
        ("assistant", "one …"),
        ("user", "second"),
        ("assistant", "re: second"),
        ("user", "third"),
        ("assistant", "awake"),
    ]


@pytest.mark.parametrize("how", ["refused", "stalled"])
def test_a_caller_on_a_partitioned_host_gets_an_error_and_recovers(
    postgres: Postgres, name: str, network: Proxy, how: str
) -> None:
    with open_store(network.url(name), wait_seconds=3.0) as store, ThreadPoolExecutor() as threads:
        session = retry_while_leased(store.create, owner=ME).id
        cut_off(network, how)
        writing = threads.submit(store.submit, session, "hello?", owner=ME, request_id="once")
        reading = threads.submit(store.session, session, owner=ME)

        assert isinstance(writing.exception(PATIENCE), StoreUnavailable)
        assert isinstance(reading.exception(PATIENCE), StoreUnavailable)
        reunite(network, how)

        first = request(store.submit, session, "hello?", owner=ME, request_id="once")
        with open_store(postgres.url(name)) as other:
            assert [turn.id for turn in other.waiting(session, owner=ME)] == [first.turn.id]


async def test_a_follower_sees_all_events_of_a_network_outage_without_a_gap(
    postgres: Postgres, name: str, network: Proxy
) -> None:
    async with host(network.url(name), 60.0) as here, host(postgres.url(name), 60.0, echo) as there:
        following = asyncio.create_task(_follow(await here.session(CHAT)))
        elsewhere = await there.session(CHAT)
        for text in ("one", "two", "three"):
            network.cut()
            await (await elsewhere.send(text)).outcome()
        await elsewhere.rename("the end")
        numbers = await following

    assert numbers == list(range(1, len(numbers) + 1))


async def _follow(session: Session) -> list[int]:
    """The numbers of all events until the session has a name; after a fault, from where it was."""
    numbers: list[int] = []
    while True:
        try:
            async with listening(session.follow(numbers[-1] if numbers else 0)) as followed:
                async for event in followed:
                    numbers.append(event.number)
                    if isinstance(event.body, SessionRenamed):
                        return numbers
        except StoreUnavailable:
            continue
