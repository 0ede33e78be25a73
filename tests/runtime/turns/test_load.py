"""Load: two hundred sessions stream in one process, separately, in bounded memory."""

import asyncio
import threading
from collections.abc import AsyncIterator

import backstay
from backstay import Text, Thought, Timing, open_store
from backstay.agents.port import AgentTurn
from backstay.agents.tools import tool
from backstay.model.content import Body
from backstay.model.event import START, TextDelta
from backstay.model.turn import Completed
from tests.databases import Place
from tests.runtime.controlled_agents import (
    Gate,
    events_of_turn,
    first_words,
    nothing_can_be_written,
    one_of_many,
    words_in,
)

CROWD = 200


@tool
async def double(number: int) -> int:
    return 2 * number


async def test_two_hundred_sessions_stream_at_once_and_everything_is_right(path: Place, notify: bool) -> None:
    together = asyncio.Event()
    began: set[str] = set()

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        name = turn.input.text
        yield Text(f"{name}: ")
        began.add(name)
        if len(began) == CROWD:
            together.set()
        await together.wait()  # From here on all of them speak at once.
        yield Thought("hm")
        for number in range(5):
            yield Text(f"{number} ")
            await asyncio.sleep(0)
        assert backstay.current().input.text == name
        yield Text(f"twice is {await turn.call(double, {'number': int(name)})}")

    async def one(app: backstay.App, number: int) -> None:
        session = await app.session()
        turn = await one_of_many(session, f"{number}")
        events = await events_of_turn(turn)
        said = f"{number}: 0 1 2 3 4 twice is {2 * number}"
        assert "".join(words_in(events)) == said
        assert [event.number for event in events] == list(range(events[0].number, events[-1].number + 1))
        assert {event.turn for event in events} == {turn.id}
        assert await turn.outcome() == Completed()
        words = [part.text for message in await session.messages() for part in message.parts if isinstance(part, Text)]
        assert words[0] == f"{number}"
        assert "".join(words[1:]) == said

    threads = threading.active_count()
    async with backstay.open(path, agent=agent, notify=notify) as app:
        await asyncio.gather(*(one(app, number) for number in range(CROWD)))
        # Sessions cost no threads: a few readers and a writer serve them all.
        assert threading.active_count() - threads < 30
        assert app.abandoned == 0


async def test_memory_stays_bounded_by_the_buffers_of_fast_agents(path: Place) -> None:
    crowd, said, flood = 50, [0] * 50, Gate()

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        place = int(turn.input.text)
        yield Text("x")
        await flood.stop_here()
        for _ in range(500):
            said[place] += 100
            yield Text("x" * 100)

    timing = Timing(buffer_bytes=4_000, flush_bytes=1_000)
    async with backstay.open(path, agent=agent, timing=timing) as app:
        sessions = [await app.session() for _ in range(crowd)]
        turns = [await session.send(f"{place}") for place, session in enumerate(sessions)]
        await asyncio.gather(*(first_words(turn) for turn in turns))
        with nothing_can_be_written(path):
            flood.open()
            for _ in range(1_000):
                await asyncio.sleep(0)
            with open_store(path) as store:
                for place, session in enumerate(sessions):
                    events = store.events_after(session.id, START, owner="local").events
                    stored = sum(len(e.body.text) for e in events if isinstance(e.body, TextDelta))
                    assert 4_000 <= said[place] - stored <= 2 * 4_000 + 2 * 100
        assert [await turn.outcome() for turn in turns] == [Completed()] * crowd
        for session in sessions:
            assert (await session.messages())[-1].text == "x" * 50_001


async def test_a_hundred_turns_wait_in_one_session_and_are_answered_in_order(path: Place) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(turn.input.text)

    async with backstay.open(path, agent=agent) as app:
        session = await app.session()
        turns = [await session.send(f"{number}") for number in range(100)]
        await turns[-1].outcome()
        said = [message.text for message in await session.messages()]
        assert said == [f"{number}" for number in range(100) for _ in range(2)]
