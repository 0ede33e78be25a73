"""A silent agent keeps its turn: its lease is renewed as long as it lives."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import backstay
from backstay import App, Store, Text, open_store
from backstay.agents.blocking_agent import BlockingAgentTurn
from backstay.model.content import Body
from backstay.model.ids import TurnId
from backstay.model.turn import Completed
from backstay.runtime.observer import Observer
from backstay.testing import ManualClock
from tests.runtime.controlled_agents import Gate, first_words, stopping_at

# Its holder renews it three times in so many seconds; it lapses by a clock that the test moves.
LEASE = 1.5


class Renewals(Observer):
    """Counts how often a holder has renewed its lease."""

    def __init__(self) -> None:
        self.count = 0

    def wrote(self, verb: str, seconds: float) -> None:
        self.count += verb == "renew"


async def many_leases(app: App, clock: ManualClock, store: Store, turn: TurnId) -> None:
    """Let time pass, nearly a whole lease at a time, and each time let the holder renew its own."""
    renewals = Renewals()
    app.observe_with(renewals)
    for _ in range(4):
        clock.advance(0.9 * LEASE)
        # The first may have been on its way already; the second knows the new time.
        enough = renewals.count + 2
        while renewals.count < enough and store.turn(turn, owner="local").state == "running":
            store.reap()
            await asyncio.sleep(0.01)


async def test_the_turn_of_a_silent_agent_outlives_many_leases_despite_readers(path: Path) -> None:
    gate, clock = Gate(), ManualClock()
    async with backstay.open(path, agent=stopping_at(gate), clock=clock, lease_seconds=LEASE) as app:
        session = await app.session()
        turn = await session.send("think")
        await first_words(turn)
        await gate.reached()
        before = (await session.read()).last_event
        with open_store(path, clock=clock, lease_seconds=LEASE) as onlooker:
            await many_leases(app, clock, onlooker, turn.id)
        assert (await session.read()).last_event == before
        gate.open()
        assert await turn.outcome() == Completed()
        assert (await session.messages())[-1].text == "one two"


async def test_the_turn_of_a_silent_thread_outlives_many_leases_too(path: Path) -> None:
    loop, free, clock = asyncio.get_running_loop(), asyncio.Event(), ManualClock()

    def agent(turn: BlockingAgentTurn) -> Iterator[Body]:
        yield Text("one ")
        asyncio.run_coroutine_threadsafe(free.wait(), loop).result()
        yield Text("two")

    async with backstay.open(path, agent=agent, clock=clock, lease_seconds=LEASE) as app:
        session = await app.session()
        turn = await session.send("think")
        await first_words(turn)
        with open_store(path, clock=clock, lease_seconds=LEASE) as onlooker:
            await many_leases(app, clock, onlooker, turn.id)
        free.set()
        assert await turn.outcome() == Completed()
        assert (await session.messages())[-1].text == "one two"
