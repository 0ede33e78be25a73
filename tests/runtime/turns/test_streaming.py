"""Streaming: output is stored in time, shown when it is stored, and stored once."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import backstay
from backstay import Custom, Text, Thought, Timing, ToolCall, ToolResult, Usage, open_store
from backstay.agents.port import AgentTurn
from backstay.agents.tools import tool
from backstay.model.content import Body
from backstay.model.event import START, CustomReported, Event, TextDelta, ThoughtDelta, UsageReported
from backstay.model.ids import SessionId
from backstay.model.turn import Completed
from tests.databases import Place
from tests.runtime.controlled_agents import Gate, events_of_turn, first_words, saying, stopping_at, words_in

# These tests are about agents and their output in the runtime: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")

# Output is then stored only for a reason other than its age or size.
NEVER = Timing(flush=3600, flush_bytes=1 << 20)


def stored(path: Place, session: SessionId) -> tuple[Event, ...]:
    """The events of the session that other processes can read now."""
    with open_store(path) as store:
        return store.events_after(session, START, owner="local").events


async def test_the_first_output_is_stored_at_once(path: Place) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_at(gate), timing=NEVER) as app:
        turn = await (await app.session()).send("hello")
        assert await first_words(turn) == "one "
        gate.open()
        await turn.outcome()


async def test_later_output_is_buffered_and_only_new_output_is_written(path: Place) -> None:
    first, second = Gate(), Gate()

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        await first.stop_here()
        for word in ("two ", "three ", "four"):
            yield Text(word)
        await second.stop_here()

    async with backstay.open(path, agent=agent, timing=NEVER) as app:
        session = await app.session()
        turn = await session.send("count")
        await first_words(turn)
        first.open()
        await second.reached()
        assert words_in(stored(path, session.id)) == ["one "]
        second.open()
        assert words_in(await events_of_turn(turn)) == ["one ", "two three four"]


@pytest.mark.parametrize(
    "timing",
    [Timing(flush=3600, flush_bytes=10), Timing(flush=0.001, flush_bytes=1 << 20)],
    ids=["enough of them", "old enough"],
)
async def test_output_is_stored_when_it_is_long_or_old_enough_during_the_turn(
    path: Place, timing: Timing, notify: bool
) -> None:
    gates = [Gate() for _ in range(4)]

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        for gate in gates:
            yield Text("ten words ")
            await gate.stop_here()

    async with backstay.open(path, agent=agent, timing=timing, notify=notify) as app:
        turn = await (await app.session()).send("count")
        heard = 0
        async for event in turn.events():
            if isinstance(event.body, TextDelta):
                assert event.body.text == "ten words "  # Each was shown before the next could be sent.
                gates[heard].open()
                heard += 1
        assert heard == 4


def written(path: Path) -> list[tuple[str, int, int]]:
    """The state of the database files; reading changes none of them."""
    looked = [(file.name, file.stat()) for file in (path, path.with_name(f"{path.name}-wal"))]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in looked]


async def test_a_silent_agent_costs_no_write(tmp_path: Path) -> None:
    gate, quick = Gate(), Timing(flush=0.001, poll=0.001)
    silent = backstay.open(
        tmp_path / "silent.db", agent=stopping_at(gate), timing=quick, lease_seconds=3600, notify=False
    )
    busy = backstay.open(tmp_path / "busy.db", agent=saying("one ", "two"), timing=quick)
    async with silent, busy:
        turn = await (await silent.session()).send("hello")
        await first_words(turn)
        before = written(tmp_path / "silent.db")
        other = await busy.session()
        for number in range(20):
            await (await other.send(f"input {number}")).outcome()
        assert written(tmp_path / "silent.db") == before
        gate.open()
        assert await turn.outcome() == Completed()


async def test_all_output_is_stored_before_a_tool_runs(path: Place) -> None:
    @tool
    def look(session: str) -> list[str]:
        return [type(event.body).__name__ for event in stored(path, SessionId(session))]

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        yield Thought("hm")
        yield Text("two ")
        found = await turn.call(look, {"session": turn.session})
        yield Custom("found", found)

    async with backstay.open(path, agent=agent, timing=NEVER) as app:
        turn = await (await app.session()).send("look")
        events = await events_of_turn(turn)
        found = next(event.body.data for event in events if isinstance(event.body, CustomReported))
    assert found[-4:] == ["TextDelta", "ThoughtDelta", "TextDelta", "ToolCalled"]


async def test_events_that_a_follower_sees_are_durable(path: Place, notify: bool) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        for number in range(10):
            yield Text(f"{number} ")
            yield Thought("hm")

    async with backstay.open(path, agent=agent, timing=Timing(flush=0), notify=notify) as app:
        session = await app.session()
        turn = await session.send("count")
        async for event in turn.events():
            assert event in stored(path, session.id)


async def test_bodies_of_every_kind_become_events_at_once_and_messages_at_the_end(path: Place) -> None:
    said: list[Body] = [
        Thought("let me "),
        Thought("think"),
        Text("I look. "),
        ToolCall("c1", "search", {"for": "tea"}),
        ToolResult("c1", ["green", "black"]),
        Custom("chart", {"bars": 2}),
        Text("There are "),
        Text("two."),
        Usage(input_tokens=10, output_tokens=3, model="m"),
        Usage(input_tokens=5, output_tokens=4, cost=0.5, model="m"),
    ]

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        for body in said:
            yield body

    async with backstay.open(path, agent=agent) as app:
        session = await app.session()
        turn = await session.send("tea?")
        events = await events_of_turn(turn)
        usages = [event.body.usage for event in events if isinstance(event.body, UsageReported)]
        thoughts = [event.body.text for event in events if isinstance(event.body, ThoughtDelta)]
        assert (usages, "".join(thoughts), "".join(words_in(events))) == (
            said[-2:],
            "let me think",
            "I look. There are two.",
        )
        assert [(message.role, message.parts) for message in (await session.messages())[1:]] == [
            ("assistant", (Thought("let me think"), Text("I look. "), said[3])),
            ("tool", (said[4],)),
            ("assistant", (said[5], Text("There are two."))),
        ]
        assert (await turn.read()).usage == Usage(input_tokens=15, output_tokens=7, cost=0.5, model="m")


async def test_output_is_never_doubled_lost_or_reordered_in_any_division(path: Place) -> None:
    words = [f"{number} " for number in range(2_000)]

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        for place, word in enumerate(words):
            yield Text(word)
            if place % 7 == 0:
                await asyncio.sleep(0)

    async with backstay.open(path, agent=agent, timing=Timing(flush=0.002, flush_bytes=100)) as app:
        session = await app.session()
        turn = await session.send("count")
        deltas = words_in(await events_of_turn(turn))
        assert "".join(deltas) == "".join(words)
        assert len(deltas) > 1
        assert (await session.messages())[-1].text == "".join(words)


async def test_empty_output_is_not_an_event(path: Place) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("")
        await turn.steering()
        yield Thought("")
        yield Text("one")

    async with backstay.open(path, agent=agent) as app:
        turn = await (await app.session()).send("hello")
        events = await events_of_turn(turn)
        assert [event.body for event in events[1:-1]] == [TextDelta("one")]
