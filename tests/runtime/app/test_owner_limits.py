"""Limits per owner: one owner cannot take a process from the others, and nothing it sent is lost."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import backstay
from backstay import OwnerLimits, Text
from backstay.agents.port import AgentTurn
from backstay.errors import ConfigError, QuotaExceeded
from backstay.model.content import Body
from backstay.model.turn import Completed
from tests.databases import Place
from tests.runtime.controlled_agents import echo, until


class HeldTurns:
    """An agent that holds its turns, and counts them."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.most: dict[str, int] = {}
        self.entered = asyncio.Condition()
        self._open = asyncio.Event()

    def open(self) -> None:
        self._open.set()

    async def agent(self, turn: AgentTurn) -> AsyncIterator[Body]:
        async with self.entered:
            self.inside.append(turn.owner)
            self.most[turn.owner] = max(self.most.get(turn.owner, 0), self.inside.count(turn.owner))
            self.entered.notify_all()
        await self._open.wait()
        yield Text("done")
        self.inside.remove(turn.owner)

    async def until(self, *owners: str) -> None:
        async with self.entered:
            await asyncio.wait_for(self.entered.wait_for(lambda: sorted(self.inside) == sorted(owners)), 60)


async def test_an_owner_at_its_limit_waits_and_others_do_not(path: Place) -> None:
    held = HeldTurns()
    async with backstay.open(path, agent=held.agent, per_owner=OwnerLimits(running_turns=2)) as app:
        greedy, modest = app.owned_by("greedy"), app.owned_by("modest")
        places = [backstay.Address.chat("test", "dm", chat=str(number)) for number in range(6)]
        turns = [await greedy.send(place, "hello", agent="default") for place in places]
        other = await modest.send(places[0], "hello", agent="default")
        await held.until("greedy", "greedy", "modest")
        assert [(await turn.read()).state for turn in turns] == ["running"] * 2 + ["waiting"] * 4
        held.open()
        assert [await turn.outcome() for turn in (*turns, other)] == [Completed()] * 7
        assert held.most == {"greedy": 2, "modest": 1}


async def test_turns_submitted_at_once_do_not_pass_the_limit(path: Place) -> None:
    held = HeldTurns()
    async with backstay.open(path, agent=held.agent, per_owner=OwnerLimits(running_turns=3)) as app:
        owned = app.owned_by("greedy")
        places = [backstay.Address.chat("test", "dm", chat=str(number)) for number in range(20)]
        turns = await asyncio.gather(*(owned.send(place, "hello", agent="default") for place in places))
        await held.until(*["greedy"] * 3)
        held.open()
        assert {await turn.outcome() for turn in turns} == {Completed()}
        assert held.most == {"greedy": 3}


async def test_an_owner_at_its_limit_cannot_start_a_compaction(path: Place) -> None:
    held = HeldTurns()
    async with backstay.open(
        path, agent=echo, agents={"slow": held.agent}, per_owner=OwnerLimits(running_turns=1)
    ) as app:
        session = await app.session()
        for _ in range(3):
            await (await session.send("a long story " * 50)).outcome()
        running = await (await app.session()).send("hello", agent="slow")
        await held.until("local")
        with pytest.raises(QuotaExceeded, match="already runs 1 turns"):
            await session.compact(keep=1)
        held.open()
        await running.outcome()


class Costly:
    """A live agent that counts how many of its kind live."""

    living: int
    most: int

    def __init__(self) -> None:
        type(self).living += 1
        type(self).most = max(type(self).most, type(self).living)

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("done")

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        type(self).living -= 1


def costly() -> type[Costly]:
    return type("Counted", (Costly,), {"living": 0, "most": 0})


async def test_an_owner_keeps_no_more_live_agents_than_it_may(path: Place) -> None:
    kind = costly()
    async with backstay.open(path, agent=kind, per_owner=OwnerLimits(live_agents=2)) as app:
        others = await app.owned_by("other").send(_chat(0), "hello", agent="default")
        await others.outcome()
        for number in range(5):
            await (await app.send(_chat(number), "hello")).outcome()
            await until(lambda: app.pool.statistics.in_use == 0)
            assert app.pool.statistics.kept <= 3
        assert app.pool.statistics.evicted == 3


async def test_an_owner_has_no_more_agent_processes_than_it_may(path: Place) -> None:
    kind = costly()
    agent = backstay.live(kind, has_process=True)
    limits = OwnerLimits(agent_processes=2)
    async with backstay.open(path, agent=agent, per_owner=limits) as app:
        turns = await asyncio.gather(*(app.send(_chat(number), "hello") for number in range(8)))
        assert {await turn.outcome() for turn in turns} == {Completed()}
        assert kind.most == 2


async def test_a_process_that_cannot_start_takes_no_room(path: Place) -> None:
    broken = [True, True, True, False]

    class Failing(costly()):  # type: ignore[misc]  # a new class with counts of its own
        def __init__(self) -> None:
            if broken.pop(0):
                raise OSError("no such program")
            super().__init__()

    agent = backstay.live(Failing, has_process=True)
    async with backstay.open(path, agent=agent, per_owner=OwnerLimits(agent_processes=1)) as app:
        outcomes = [await (await app.send(_chat(number), "hello")).outcome() for number in range(4)]
        assert [isinstance(outcome, Completed) for outcome in outcomes] == [False, False, False, True]


@pytest.mark.parametrize("name", ["running_turns", "live_agents", "agent_processes"])
def test_a_limit_below_one_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        OwnerLimits(**{name: 0})


def _chat(number: int) -> backstay.Address:
    return backstay.Address.chat("test", "dm", chat=str(number))
