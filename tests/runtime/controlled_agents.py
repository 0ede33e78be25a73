"""Agents that a test controls step by step, and functions that wait for a step."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager, suppress
from typing import Any, TypeVar

from backstay import Text, open_store
from backstay.agents.port import AgentTurn
from backstay.errors import StoreUnavailable
from backstay.model.content import Body
from backstay.model.event import Event, TextDelta, TurnEnded
from backstay.model.message import Message
from backstay.model.turn import Outcome
from backstay.runtime.session_handle import Session
from backstay.runtime.turn_handle import Turn
from backstay.testing import ManualClock
from tests.databases import Place, locked

T = TypeVar("T")
AgentFunction = Callable[[AgentTurn], AsyncIterator[Body]]

# No test waits for time: a scenario that has not ended by then hangs.
PATIENCE = 150.0


def play(story: Coroutine[Any, Any, T]) -> T:
    """The result of a scenario; one that hangs is a failure."""

    async def bounded() -> T:
        async with asyncio.timeout(PATIENCE):
            return await story

    return asyncio.run(bounded())


class Gate:
    """A point where an agent stops until the test opens it."""

    def __init__(self) -> None:
        self._reached, self._open = asyncio.Event(), asyncio.Event()

    async def stop_here(self) -> None:
        """For the agent: report its arrival, and wait."""
        self._reached.set()
        await self._open.wait()

    async def reached(self) -> None:
        """For the test: wait until a task waits here."""
        await self._reached.wait()

    def open(self) -> None:
        """Let every task pass from now on."""
        self._open.set()


def saying(*words: str) -> AgentFunction:
    """An agent that answers every input with this text."""

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        for word in words:
            yield Text(word)

    return agent


def stopping_at(gate: Gate, before: str = "one ", after: str = "two") -> AgentFunction:
    """An agent that sends some output, stops at the gate, and continues when it opens."""

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(before)
        await gate.stop_here()
        yield Text(after)

    return agent


async def echo(turn: AgentTurn) -> AsyncIterator[Body]:
    """An agent that repeats its input."""
    yield Text(f"heard {turn.input.text}")


def let_time_pass(seconds: float) -> None:
    """Set the clock of the running event loop ahead: its timeouts end as if it had waited, however busy the machine."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]  # a loop has no other way to set its clock


async def until(claim: Callable[[], bool]) -> None:
    """Let other tasks run until the claim is true."""
    while not claim():  # noqa: ASYNC110  # nobody tells when a count has changed
        await asyncio.sleep(0.005)


async def a_few_steps() -> None:
    """Let every task run until it waits for a thread, the store or the clock."""
    for _ in range(100):
        await asyncio.sleep(0)


@contextmanager
def set_in_the_end(release: asyncio.Event | threading.Event) -> Iterator[None]:
    """After the block, however it ends, the event is set, so that tasks that ignore cancellation end too."""
    try:
        yield
    finally:
        release.set()


async def first_words(turn: Turn) -> str:
    """The first words of the turn, once they are stored."""
    async with aclosing(_events(turn)) as events:
        async for event in events:
            if isinstance(event.body, TextDelta):
                return event.body.text
    raise AssertionError("the turn ended without a word")


async def _events(turn: Turn) -> Any:  # Any: an async generator, whose type the handle does not promise
    async for event in turn.events():
        yield event


async def one_of_many(session: Session, text: str) -> Turn:
    """Send it as one of many callers; repeat the write if it could not begin in time."""
    while True:
        with suppress(StoreUnavailable):
            return await session.send(text, request_id=text)


async def events_of_turn(turn: Turn, after: int | None = None) -> list[Event]:
    """All of the turn's events, up to its end."""
    return [event async for event in turn.events(after)]


async def until_end(session: Session, turns: int = 1) -> list[Outcome]:
    """The outcomes of the first turns of the session, once this number has ended."""
    outcomes: list[Outcome] = []
    async for event in session.follow():
        if isinstance(event.body, TurnEnded):
            outcomes.append(event.body.outcome)
        if len(outcomes) == turns:
            break
    return outcomes


class Follower:
    """Follows a session and keeps its events."""

    def __init__(self, session: Session) -> None:
        self.events: list[Event] = []
        self._session = session
        self._news = asyncio.Event()
        self._following = asyncio.create_task(self._follow())

    async def caught_up(self) -> None:
        """Wait until it has all current events."""
        last = (await self._session.read()).last_event
        while not self.events or self.events[-1].last < last:
            self._news.clear()
            await self._news.wait()

    async def until_the_end(self) -> list[Event]:
        """All its events, once the session has ended."""
        await self._following
        return self.events

    async def _follow(self) -> None:
        async for event in self._session.follow():
            self.events.append(event)
            self._news.set()


def words_in(events: Iterable[Event]) -> list[str]:
    """The text in these events, delta by delta."""
    return [event.body.text for event in events if isinstance(event.body, TextDelta)]


def roles_and_texts(messages: Iterable[Message]) -> list[tuple[str, str]]:
    """Who said what."""
    return [(message.role, message.text) for message in messages]


class HeldClock(ManualClock):
    """A clock that can be held: a thread that reads it then waits, in the middle of its work."""

    def __init__(self) -> None:
        super().__init__()
        self._asked, self._free = threading.Event(), threading.Event()
        self._free.set()
        self._holder = 0

    def now(self) -> int:
        self._wait()
        return super().now()

    def boot(self) -> int:
        self._wait()
        return super().boot()

    def _wait(self) -> None:
        if not self._free.is_set() and threading.get_ident() != self._holder:
            self._asked.set()
            self._free.wait(PATIENCE)

    def hold(self) -> None:
        """Answer only the calling thread, until it calls `release`."""
        self._asked.clear()
        self._holder = threading.get_ident()
        self._free.clear()

    def wait_until_asked(self) -> None:
        """Return when a caller waits for an answer."""
        assert self._asked.wait(PATIENCE)

    def release(self) -> None:
        """Answer every caller again."""
        self._free.set()


@contextmanager
def nothing_can_be_written(path: Place) -> Iterator[None]:
    """Inside the block every write waits."""
    with locked(path) if isinstance(path, str) else in_the_middle_of_a_write(path):
        yield


@contextmanager
def in_the_middle_of_a_write(path: Place) -> Iterator[None]:
    """Inside the block another handle writes, and one file takes one write at a time."""
    clock = HeldClock()
    with open_store(path, clock=clock) as store, ThreadPoolExecutor(1) as thread:
        clock.hold()
        writing = thread.submit(store.create, owner="somebody who writes slowly")
        clock.wait_until_asked()
        try:
            yield
        finally:
            clock.release()
            writing.result()
