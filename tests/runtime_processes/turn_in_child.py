"""An app in the process of the test, and a turn that runs in a child process."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import backstay
from backstay import App, Timing
from backstay.agents.port import AgentTurn
from backstay.model.content import Body, Text
from backstay.model.event import Event, EventBody, TextDelta
from backstay.model.message import Message
from backstay.runtime.session_handle import Session
from backstay.runtime.turn_handle import Turn
from tests.databases import Place
from tests.runtime_processes.app_programs import CHAT, LONG, PLAIN, Setting, work
from tests.runtime_processes.child_process import PATIENCE, Child

T = TypeVar("T")
ME = "local"


def play(story: Coroutine[Any, Any, T]) -> T:
    """Run a scenario of a test; one that does not end fails."""
    return asyncio.run(asyncio.wait_for(story, PATIENCE))


class TurnInChild(NamedTuple):
    """A session whose turn `first` runs in the other process, and has said `one `."""

    app: App
    session: Session
    turn: Turn
    other: Child


@asynccontextmanager
async def host(path: Place, timing: Timing | None = None) -> AsyncIterator[App]:
    """An app that accepts and follows and runs nothing itself, without the in-process wake-up."""
    async with backstay.open(path, notify=False, lease_seconds=LONG, timing=timing) as app:
        yield app


@asynccontextmanager
async def busy(
    path: Place, setting: Setting = PLAIN, *, child: Callable[..., Child] = Child, timing: Timing | None = None
) -> AsyncIterator[TurnInChild]:
    """A running turn; only the child process serves the agent."""
    with child(work, path, setting) as other:
        async with host(path, timing=timing) as app:
            session = await app.session(CHAT)
            turn = await session.send("first", request_id="first")
            await other.receive_async("speaking", "first")
            other.send_order("first", "say", "one ")
            await seen(turn, TextDelta)
            yield TurnInChild(app, session, turn, other)


@asynccontextmanager
async def listening(story: AsyncIterator[Event]) -> AsyncIterator[AsyncIterator[Event]]:
    """Follow events inside the block, and stop at its end."""
    try:
        yield story
    finally:
        if isinstance(story, AsyncGenerator):
            await story.aclose()


async def seen(turn: Turn, kind: type[EventBody]) -> list[Event]:
    """The turn's events up to the first of this kind."""
    events = []
    async with listening(turn.events()) as story:
        async for event in story:
            events.append(event)
            if isinstance(event.body, kind):
                return events
    raise AssertionError(f"the turn ended without {kind.__name__}")


async def until_said(turn: Turn, words: str) -> None:
    """Wait until the turn has sent all these words, and they are stored."""
    heard = ""
    async with listening(turn.events()) as story:
        async for event in story:
            heard += event.body.text if isinstance(event.body, TextDelta) else ""
            if heard == words:
                return
    raise AssertionError(f"the turn said {heard!r}")


async def said(session: Session) -> list[tuple[str, str]]:
    """The roles and texts of the session."""
    return [spoken(message) for message in await session.messages()]


def spoken(message: Message) -> tuple[str, str]:
    """The roles and texts; a partial message ends with a mark."""
    return message.role, message.text + ("…" if message.partial else "")


async def echo(turn: AgentTurn) -> AsyncIterator[Body]:
    """Answers at once."""
    yield Text(f"re: {turn.input.text}")
