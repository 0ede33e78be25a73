"""A host sleeps through its lease, as after a snapshot of its machine: when it wakes, its writes are rejected."""

import pytest

from backstay.model.event import TurnEnded
from backstay.model.turn import Completed, Interrupted
from tests.effort import sample
from tests.postgres.hosts.host_programs import hold
from tests.postgres.hosts.turn_on_host import busy, host, still_works
from tests.postgres_servers.postgres import Postgres, at
from tests.runtime_processes.app_programs import CHAT
from tests.runtime_processes.child_process import OwnChild
from tests.runtime_processes.turn_in_child import echo, said, seen

LEASE = 8.0
DOORS = ["straight", "pooled"]


@pytest.mark.parametrize("server_port", sample(DOORS, 1, first=1), indirect=True)
async def test_a_holder_that_slept_through_its_lease_is_refused_by_the_database(
    postgres: Postgres, name: str, server_port: int
) -> None:
    with OwnChild(hold, at(server_port, name), LEASE) as sleeper:
        (session,) = await sleeper.receive_async("holds")
        sleeper.send_order("holder", "one ")
        await sleeper.receive_async("wrote")
        sleeper.pause()
        async with host(at(server_port, name), LEASE, echo) as app:
            second = await (await app.session(session)).send("second")
            assert await second.outcome() == Completed()

            sleeper.send_order("holder", "too late")
            sleeper.go_on()
            await sleeper.receive_async("refused")
            result = await said(await app.session(session))

    assert result == [
        ("user", "first"),
        ("assistant", "one …"),
        ("user", "second"),
        ("assistant", "re: second"),
    ]


@pytest.mark.parametrize("server_port", sample(DOORS, 1), indirect=True)
async def test_a_host_that_slept_through_its_lease_is_stopped_and_works_on_as_if_new(
    postgres: Postgres, name: str, server_port: int
) -> None:
    async with busy(at(server_port, name), at(server_port, name), LEASE) as remote:
        remote.other.pause()
        async with host(at(server_port, name), LEASE, echo) as app:
            second = await (await app.session(CHAT)).send("second")
            assert await second.outcome() == Completed()
        assert isinstance(await remote.turn.outcome(), Interrupted)

        remote.other.send_order("first", "say", "too late")
        remote.other.go_on()
        await remote.other.receive_async("stopped", "first")
        still_works(remote.other, "third")

        endings = [event for event in await seen(remote.turn, TurnEnded) if isinstance(event.body, TurnEnded)]
        assert len(endings) == 1
        result = await said(remote.session)

    assert result == [
        ("user", "first"),
        ("assistant", "one …"),
        ("user", "second"),
        ("assistant", "re: second"),
        ("user", "third"),
        ("assistant", "awake"),
    ]


async def test_a_host_that_slept_for_less_than_its_lease_continues(
    postgres: Postgres, name: str, server_port: int
) -> None:
    async with busy(at(server_port, name), at(server_port, name), 600.0) as remote:
        remote.other.pause()
        second = await remote.session.send("second")
        remote.other.send_order("first", "say", "in time")
        remote.other.send_order("first", "end")
        remote.other.send_order("second", "end")
        remote.other.go_on()
        await second.outcome()
        result = (await said(remote.session))[:3]

    assert result == [("user", "first"), ("assistant", "one in time"), ("user", "second")]
