"""Titles: a titler is called after the first turn, and a person's title is never replaced."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import backstay
from backstay import Text, Timing, open_store
from backstay.agents.port import AgentTurn
from backstay.model.content import Body
from backstay.model.event import SessionRenamed
from backstay.model.message import Message
from backstay.model.turn import Completed
from backstay.runtime.session_handle import Session
from backstay.runtime.titles import first_words
from tests.databases import Place
from tests.runtime.controlled_agents import Gate, echo, set_in_the_end

# These tests are about agents and their output in the runtime: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")


async def titled(session: Session) -> str | None:
    """The first title the session is given."""
    async for event in session.follow():
        if isinstance(event.body, SessionRenamed):
            return event.body.title
    raise AssertionError("the story ended without a title")


async def test_a_titler_is_called_after_the_first_turn_with_its_messages(path: Place, notify: bool) -> None:
    asked: list[list[str]] = []

    async def titler(messages: tuple[Message, ...]) -> str:
        asked.append([message.text for message in messages])
        return "Greetings"

    async with backstay.open(path, agent=echo, titler=titler, notify=notify) as app:
        session = await app.session()
        await (await session.send("hello")).outcome()
        assert await titled(session) == "Greetings"
        await (await session.send("again")).outcome()
        now = await session.read()
        assert (now.title, now.title_by) == ("Greetings", "agent")
    assert asked == [["hello", "heard hello"]]


async def test_first_words_are_the_title_until_a_better_one_exists(path: Place) -> None:
    async def titler(messages: tuple[Message, ...]) -> str:
        return "Greetings"

    async with backstay.open(path, agent=echo, titler=first_words) as app:
        session = await app.session()
        await (await session.send("hello  there")).outcome()
        assert await titled(session) == "hello there"
    async with backstay.open(path, agent=echo, titler=titler) as app:
        session = await app.session(session.id)
        await (await session.send("again")).outcome()
    async with backstay.open(path, agent=echo, titler=first_words) as app:
        session = await app.session(session.id)
        await (await session.send("once more")).outcome()
    async with backstay.open(path) as app:
        assert (await (await app.session(session.id)).read()).title == "Greetings"


@pytest.mark.parametrize("title", ["hello", "Tea"])
async def test_a_persons_title_is_kept_even_if_it_is_the_first_words(path: Place, title: str) -> None:
    async def titler(messages: tuple[Message, ...]) -> str:
        raise AssertionError("there is a title")

    async with backstay.open(path, agent=echo, titler=titler) as app:
        session = await app.session()
        await session.rename(title)
        await (await session.send("hello")).outcome()
    async with backstay.open(path) as app:
        assert (await (await app.session(session.id)).read()).title == title


async def test_a_title_given_by_a_person_while_the_titler_thinks_stays(path: Place) -> None:
    gate = Gate()

    async def titler(messages: tuple[Message, ...]) -> str:
        await gate.stop_here()
        return "a machine's title"

    async with backstay.open(path, agent=echo, titler=titler) as app:
        session = await app.session()
        await (await session.send("hello")).outcome()
        await gate.reached()
        await session.rename("my title")
        gate.open()
    async with backstay.open(path) as app:
        now = await (await app.session(session.id)).read()
        assert (now.title, now.title_by) == ("my title", "person")


async def test_a_titler_is_not_asked_when_a_person_was_first(path: Place) -> None:
    async def titler(messages: tuple[Message, ...]) -> str:
        raise AssertionError("there is a title")

    async with backstay.open(path, agent=echo, titler=titler) as app:
        session = await app.session()
        await session.rename("my title")
        await (await session.send("hello")).outcome()
    async with backstay.open(path) as app:
        assert (await (await app.session(session.id)).read()).title == "my title"


async def test_a_titler_is_not_asked_about_a_turn_that_failed(path: Place) -> None:
    asked: list[str] = []

    async def failing_first(turn: AgentTurn) -> AsyncIterator[Body]:
        if len(turn.messages) == 1:
            raise ValueError("not today")
        yield Text("well")

    async def titler(messages: tuple[Message, ...]) -> str:
        asked.append(messages[-1].text)
        return "a title"

    async with backstay.open(path, agent=failing_first, titler=titler) as app:
        session = await app.session()
        await (await session.send("hello")).outcome()
        await (await session.send("again")).outcome()
        assert await titled(session) == "a title"
    assert asked == ["well"]


@pytest.mark.parametrize("title", [None, 5, "", "\ud800", "x" * 100_000, "a\0b", ValueError("no idea")], ids=repr)
async def test_a_titler_that_fails_or_returns_an_invalid_title_affects_nothing_else(path: Place, title: Any) -> None:
    answers = [title, "a good title"]

    async def titler(messages: tuple[Message, ...]) -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return str(answer) if answer == "a good title" else answer

    async with backstay.open(path, agent=echo, titler=titler) as app:
        session = await app.session()
        assert await (await session.send("hello")).outcome() == Completed()
    async with backstay.open(path, agent=echo, titler=titler) as app:
        session = await app.session(session.id)
        assert (await session.read()).title is None
        assert await (await session.send("again")).outcome() == Completed()
        assert await titled(session) == "a good title"


async def test_a_titler_that_hangs_holds_up_neither_turns_nor_the_closing(path: Place) -> None:
    async def titler(messages: tuple[Message, ...]) -> str:
        await asyncio.Event().wait()
        return "never"

    async with backstay.open(path, agent=echo, titler=titler, timing=Timing(grace=0.05)) as app:
        session = await app.session()
        for number in range(3):
            assert await (await session.send(f"{number}")).outcome() == Completed()
    assert len(asyncio.all_tasks()) == 1


async def test_a_titler_that_ignores_its_cancellation_does_not_hold_up_the_closing(path: Place) -> None:
    began, roles_and_texts, released = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def titler(messages: tuple[Message, ...]) -> str:
        began.set()
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                roles_and_texts.set()
        return "too late"

    async with backstay.open(path, agent=echo, titler=titler, timing=Timing(grace=0.05)) as app:
        session = await app.session()
        assert await (await session.send("hello")).outcome() == Completed()
        await began.wait()
    with set_in_the_end(released):
        assert roles_and_texts.is_set()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert len(left) == 1
    await asyncio.wait(left)
    with open_store(path) as store:
        assert store.session(session.id, owner="local").title is None


async def test_deleting_a_session_during_its_titler_causes_no_error(path: Place) -> None:
    gate = Gate()

    async def titler(messages: tuple[Message, ...]) -> str:
        await gate.stop_here()
        return "too late"

    async with backstay.open(path, agent=echo, titler=titler) as app:
        session, other = await app.session(), await app.session()
        await (await session.send("hello")).outcome()
        await gate.reached()
        await session.delete()
        gate.open()
        await (await other.send("hello")).outcome()
        assert await titled(other) == "too late"
