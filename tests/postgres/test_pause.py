"""A host sleeps through its lease, as after a snapshot of its machine: when it wakes, the database refuses it."""

from backstay.model.event import TurnEnded
from backstay.model.turn import Completed, Interrupted
from tests.postgres.programs import hold
from tests.postgres.stage import busy, host, still_works
from tests.runtime_processes.child import OwnChild
from tests.runtime_processes.programs import CHAT
from tests.runtime_processes.stage import echo, play, said, seen
from tests.servers.postgres import Postgres, at

LEASE = 8.0


def test_a_holder_that_slept_through_its_lease_is_refused_by_the_database(
    postgres: Postgres, name: str, door: int
) -> None:
    async def story() -> list[tuple[str, str]]:
        with OwnChild(hold, at(door, name), LEASE) as sleeper:
            (session,) = await sleeper.heard("holds")
            sleeper.order("holder", "one ")
            await sleeper.heard("wrote")
            sleeper.pause()
            async with host(at(door, name), LEASE, echo) as app:
                second = await (await app.session(session)).send("second")
                assert await second.outcome() == Completed()

                sleeper.order("holder", "too late")
                sleeper.go_on()
                await sleeper.heard("refused")
                return await said(await app.session(session))

    assert play(story()) == [
        ("user", "first"),
        ("assistant", "one …"),
        ("user", "second"),
        ("assistant", "re: second"),
    ]


def test_a_host_that_slept_through_its_lease_is_stopped_and_works_on_as_if_new(
    postgres: Postgres, name: str, door: int
) -> None:
    async def story() -> list[tuple[str, str]]:
        async with busy(at(door, name), at(door, name), LEASE) as stage:
            stage.other.pause()
            async with host(at(door, name), LEASE, echo) as app:
                second = await (await app.session(CHAT)).send("second")
                assert await second.outcome() == Completed()
            assert isinstance(await stage.turn.outcome(), Interrupted)

            stage.other.order("first", "say", "too late")
            stage.other.go_on()
            await stage.other.heard("stopped", "first")
            still_works(stage.other, "third")

            endings = [event for event in await seen(stage.turn, TurnEnded) if isinstance(event.body, TurnEnded)]
            assert len(endings) == 1
            return await said(stage.session)

    assert play(story()) == [
        ("user", "first"),
        ("assistant", "one …"),
        ("user", "second"),
        ("assistant", "re: second"),
        ("user", "third"),
        ("assistant", "awake"),
    ]


def test_a_host_that_slept_for_less_than_its_lease_goes_on(postgres: Postgres, name: str, door: int) -> None:
    async def story() -> list[tuple[str, str]]:
        async with busy(at(door, name), at(door, name), 600.0) as stage:
            stage.other.pause()
            second = await stage.session.send("second")
            stage.other.order("first", "say", "in time")
            stage.other.order("first", "end")
            stage.other.order("second", "end")
            stage.other.go_on()
            await second.outcome()
            return (await said(stage.session))[:3]

    assert play(story()) == [("user", "first"), ("assistant", "one in time"), ("user", "second")]
