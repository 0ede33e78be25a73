"""Random actions: users do everything concurrently, in two apps on one store, and the events are sound."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

import backstay
from backstay import Custom, Text, Thought, Timing, ToolCall, ToolResult, Usage, open_store
from backstay.agents.port import AgentTurn
from backstay.agents.tools import ToolFailed, tool
from backstay.errors import Conflict
from backstay.model.content import Body
from backstay.model.event import START, Event, SessionDeleted, TurnEnded, TurnRecorded
from backstay.model.history.projection import readable
from backstay.model.ids import SessionId, TurnId
from backstay.model.message import Message, assistant, user
from backstay.model.turn import Completed, Failed, IfBusy
from backstay.runtime.session_handle import Session
from backstay.runtime.turn_handle import Turn
from backstay.store import Store
from tests.databases import Place
from tests.effort import tries
from tests.runtime.controlled_agents import AgentFunction

QUICK = Timing(flush=0.002, flush_bytes=64, poll=0.002, grace=60.0, reap=0.05)


@tool
async def double(number: int) -> int:
    await asyncio.sleep(0)
    if number % 5 == 0:
        raise ValueError("not that one")
    return 2 * number


def check_valid(messages: tuple[Message, ...]) -> None:
    """Every call is answered exactly once, directly after the message that made it."""
    expected: list[str] = []
    for message in messages:
        results = sorted(part.id for part in message.parts if isinstance(part, ToolResult))
        assert results == sorted(expected)
        expected = [part.id for part in message.parts if isinstance(part, ToolCall)]
    assert not expected


async def talks(turn: AgentTurn, chance: random.Random) -> AsyncIterator[Body]:
    yield Text("word " * chance.randrange(1, 30))


async def thinks(turn: AgentTurn, chance: random.Random) -> AsyncIterator[Body]:
    yield Thought("hm ")


async def works(turn: AgentTurn, chance: random.Random) -> AsyncIterator[Body]:
    try:
        yield Text(f"{await turn.call(double, {'number': chance.randrange(20)})} ")
    except ToolFailed:
        yield Text("it failed ")


async def works_hard(turn: AgentTurn, chance: random.Random) -> AsyncIterator[Body]:
    numbers = [chance.randrange(1, 5) for _ in range(3)]
    await asyncio.gather(*(turn.call(double, {"number": number}) for number in numbers))
    yield Usage(output_tokens=1)


async def listens(turn: AgentTurn, chance: random.Random) -> AsyncIterator[Body]:
    yield Text(f"{len(await turn.steering())} heard ")


async def dreams(turn: AgentTurn, chance: random.Random) -> AsyncIterator[Body]:
    yield Custom("mood", {"good": True})
    for _ in range(chance.randrange(20)):
        await asyncio.sleep(0)


async def sulks(turn: AgentTurn, chance: random.Random) -> AsyncIterator[Body]:
    if chance.random() < 0.2:
        raise ValueError("a bad mood")
    yield Thought("well ")


MOODS = [talks, talks, talks, thinks, works, works_hard, listens, dreams, sulks]


def moody(chance: random.Random) -> AgentFunction:
    """An agent with random output."""

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        check_valid(turn.messages)
        assert turn.messages[-1] == turn.input
        for mood in chance.choices(MOODS, k=chance.randrange(8)):
            async for body in mood(turn, chance):
                assert backstay.current().id == turn.id
                yield body

    return agent


class Person:
    """A user who does random things to sessions, and keeps the accepted turns."""

    def __init__(self, chance: random.Random, apps: list[backstay.App], sessions: list[SessionId]) -> None:
        self.turns: list[Turn] = []
        self._chance, self._apps, self._sessions = chance, apps, sessions

    async def act(self, times: int) -> None:
        for _ in range(times):
            app = self._chance.choice(self._apps)
            session = await app.session(self._chance.choice(self._sessions))
            try:
                await self._one(session)
            except Conflict:
                continue  # Another user was first, which is allowed.

    async def _one(self, session: Session) -> None:
        verbs: list[Callable[[], Awaitable[object]]] = [
            lambda: self._send(session, "enqueue"),
            lambda: self._send(session, "steer"),
            lambda: self._send(session, "replace"),
            lambda: self._send(session, "reject"),
            lambda: self._send(session, "fork"),
            lambda: session.record([user("noted"), assistant("elsewhere")]),
            session.undo,
            session.redo,
            lambda: self._kept(session.retry(agent="default")),
            lambda: session.rename(f"{self._chance.random()}"),
            session.messages,
            self._cancel,
            self._wait,
        ]
        await self._chance.choice(verbs)()

    async def _send(self, session: Session, if_busy: IfBusy) -> None:
        await self._kept(session.send(f"{self._chance.random()}", if_busy=if_busy))

    async def _kept(self, sending: Awaitable[Turn]) -> None:
        self.turns.append(await sending)

    async def _cancel(self) -> None:
        if self.turns:
            await self._chance.choice(self.turns).cancel()

    async def _wait(self) -> None:
        if self.turns:
            await self._chance.choice(self.turns).outcome()


def all_events(store: Store, session: SessionId) -> list[Event]:
    events: list[Event] = []
    while True:
        after = events[-1].cursor if events else START
        page = store.events_after(session, after, owner="local", limit=1_000)
        events += page.events
        if not page.more:
            return events


def check_story(store: Store, session: SessionId) -> set[TurnId]:
    """The session's events are gapless, with one end for every turn, and leave a valid history; returns its turns."""
    now, events = store.session(session, owner="local"), all_events(store, session)
    assert (now.running, now.holder, now.waiting) == (None, None, 0)
    assert [event.number for event in events] == list(range(1, now.last_event + 1))
    ends = Counter(event.turn for event in events if isinstance(event.body, TurnEnded | TurnRecorded))
    turns = {event.turn for event in events if event.turn is not None}
    assert {turn: ends[turn] for turn in turns} == dict.fromkeys(turns, 1)
    assert not any(isinstance(event.body, SessionDeleted) for event in events)
    for window in store.lineage(session, owner="local"):
        check_valid(readable(store.messages(session, owner="local", window=window.id).messages))
    return turns


@pytest.mark.parametrize("seed", range(tries(1, 4, 40)))
async def test_after_any_concurrent_actions_each_turn_ended_once_and_events_are_sound(
    path: Place, seed: int, notify: bool
) -> None:
    chance = random.Random(seed)

    first = backstay.open(path, agent=moody(chance), timing=QUICK, notify=notify)
    second = backstay.open(path, agent=moody(chance), timing=QUICK, notify=notify)
    async with first, second, backstay.open(path, timing=QUICK, notify=notify) as door:
        apps = [first, second, door]
        sessions = [(await first.session()).id for _ in range(3)]
        people = [Person(chance, apps, sessions) for _ in range(6)]
        await asyncio.gather(*(person.act(25) for person in people))
        turns = [turn for person in people for turn in person.turns]
        for turn in turns:
            outcome = await turn.outcome()
            assert not isinstance(outcome, Failed) or outcome.reason.startswith("the agent raised ValueError (")
        assert first.abandoned == second.abandoned == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}

    with open_store(path) as store:
        ended = {turn for session in store.list(owner="local").sessions for turn in check_story(store, session.id)}
        assert {turn.id for turn in turns} <= ended
        assert any(store.turn(turn.id, owner="local").outcome == Completed() for turn in turns)
