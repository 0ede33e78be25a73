"""Waiting for the outcome of a turn, in the process that runs it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

import backstay
from backstay import Cancelled, Completed, Text, Timing, open_store
from backstay.agents import AgentTurn
from backstay.errors import StoreReplaced
from backstay.model.content import Body
from tests.databases import Place
from tests.runtime.controlled_agents import Gate, saying, set_in_the_end, stopping_at


async def test_a_cancelled_waiter_leaves_the_others_waiting(path: Place) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_at(gate)) as app:
        turn = await (await app.session()).send("hello")
        await gate.reached()
        first, second = asyncio.create_task(turn.outcome()), asyncio.create_task(turn.outcome())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait({first})
        gate.open()
        assert (await second, await turn.outcome()) == (Completed(), Completed())
        assert first.cancelled()


async def test_the_outcome_is_stored_when_a_waiter_gets_it(path: Place) -> None:
    async with backstay.open(path, agent=saying("one ", "two")) as app:
        turn = await (await app.session()).send("hello")
        outcome = await turn.outcome()
        with open_store(path) as store:
            assert store.turn(turn.id, owner="local").outcome == outcome == Completed()


async def test_a_waiting_turn_that_starts_here_brings_its_outcome(path: Place) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_at(gate)) as app:
        session = await app.session()
        first, second = await session.send("one"), await session.send("two")
        waiting = asyncio.create_task(second.outcome())
        await gate.reached()
        gate.open()
        assert (await first.outcome(), await waiting) == (Completed(), Completed())


async def test_a_turn_that_another_process_ends_has_its_outcome(path: Place) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_at(gate)) as app:
        turn = await (await app.session()).send("hello")
        await gate.reached()
        with open_store(path) as store:
            store.cancel(turn.id, owner="local", take=True)
        assert isinstance(await turn.outcome(), Cancelled)


async def test_a_stubborn_agent_does_not_delay_an_outcome_of_another_process(path: Place) -> None:
    gate, release = Gate(), asyncio.Event()

    async def stubborn(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        await gate.stop_here()
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()

    # The app would wait for the agent for an hour.
    async with backstay.open(path, agent=stubborn, timing=Timing(grace=3_600)) as app:
        with set_in_the_end(release):
            turn = await (await app.session()).send("hello")
            await gate.reached()
            gate.open()
            with open_store(path) as store:
                store.cancel(turn.id, owner="local", take=True)
            assert isinstance(await turn.outcome(), Cancelled)


@pytest.mark.engines("sqlite")
async def test_a_waiter_learns_that_the_database_was_taken_away(path: Path) -> None:
    gate = Gate()
    # The recorder would retry for most of its lease.
    async with backstay.open(path, agent=stopping_at(gate), lease_seconds=3_600) as app:
        turn = await (await app.session()).send("hello")
        await gate.reached()
        kept = await asyncio.to_thread(path.rename, path.with_name("moved.db"))
        waiting = asyncio.create_task(turn.outcome())
        gate.open()
        with pytest.raises(StoreReplaced):
            await waiting
        await asyncio.to_thread(kept.rename, path)
        assert await turn.outcome() == Completed()
