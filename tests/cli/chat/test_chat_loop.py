"""The tasks of an interactive chat end with it, however it ends."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from backstay import open as open_app
from backstay.agents import ScriptedAgent
from backstay.cli.chat.blocks import Block
from backstay.cli.chat.chat_io import TypedLine, UserInput
from backstay.cli.chat.chat_loop import ChatLoop
from backstay.cli.chat.direct import DirectExchange
from backstay.cli.chat.exchange import Busy, ChatEvent
from backstay.errors import NotFound
from backstay.model.content import Attachment
from backstay.model.ids import SessionId, TurnId
from backstay.model.session import SessionInfo
from backstay.model.turn import TurnInfo
from backstay.runtime.app import App
from tests.runtime.controlled_agents import Gate


class Person:
    """Enters each input when its event is set, and then nothing more."""

    def __init__(self, *inputs: tuple[UserInput, asyncio.Event], paced: bool = False) -> None:
        self._inputs, self.paced = list(inputs), paced

    async def show(self, blocks: Sequence[Block]) -> None:
        """Look at nothing."""

    def refresh(self) -> None:
        """Look at nothing."""

    async def read_input(self) -> UserInput:
        user_input, event = self._inputs.pop(0) if self._inputs else ("exit", asyncio.Event())
        await event.wait()
        return user_input

    def resume(self) -> None:
        """Wait for nothing."""

    def put(self, text: str) -> bool:
        return False


class WatchedExchange(DirectExchange):
    """Sets `looked` when the session was read after a message was sent."""

    def __init__(self, app: App) -> None:
        super().__init__(app, name="test", owner="local", agent="default")
        self._sent, self.looked = False, asyncio.Event()

    async def send(
        self, session: SessionId, text: str, *, request_id: str, if_busy: Busy, files: Sequence[Attachment] = ()
    ) -> TurnId:
        turn = await super().send(session, text, request_id=request_id, if_busy=if_busy, files=files)
        self._sent = True
        return turn

    async def session(self, session: SessionId) -> SessionInfo:
        info = await super().session(session)
        if self._sent:
            self.looked.set()
        return info


class FailingFollow(DirectExchange):
    """Fails unexpectedly while the turn is being cancelled."""

    def __init__(self, app: App) -> None:
        super().__init__(app, name="test", owner="local", agent="default")
        self.delivered, self.cancelling = asyncio.Event(), Gate()

    async def follow(self, session: SessionId, after: int) -> AsyncGenerator[ChatEvent, None]:
        remaining = (await self.session(session)).last_event - after
        async with aclosing(super().follow(session, after)) as events:
            async for event in events:
                yield event
                remaining -= 1
                if not remaining:
                    break
        self.delivered.set()
        await self.cancelling.reached()
        raise ValueError("unexpected")

    async def cancel(self, turn: TurnId) -> None:
        await self.cancelling.stop_here()


class FailingTurns(DirectExchange):
    """One turn cannot be read, while another one is being read."""

    def __init__(self, app: App) -> None:
        super().__init__(app, name="test", owner="local", agent="default")
        self._reading = Gate()
        self._first = True

    async def turn(self, turn: TurnId) -> TurnInfo:
        if self._first:
            self._first = False
            await self._reading.stop_here()
        await self._reading.reached()
        raise NotFound("no such turn")


@asynccontextmanager
async def nothing_left(path: Path) -> AsyncIterator[App]:
    """An app. The tasks that are started inside the block have ended at its end."""
    async with open_app(path) as app:
        before = asyncio.all_tasks()
        yield app
        assert asyncio.all_tasks() <= before


async def test_a_chat_that_waits_for_an_answer_can_end(tmp_path: Path) -> None:
    async with nothing_left(tmp_path / "chat.db") as app:
        exchange, at_once = WatchedExchange(app), asyncio.Event()
        at_once.set()
        person = Person((TypedLine("hello"), at_once), ("exit", exchange.looked), paced=True)

        await ChatLoop(exchange, None).run(person, await exchange.create(None))


async def test_a_chat_that_fails_ends_its_cancellations_too(tmp_path: Path) -> None:
    async with nothing_left(tmp_path / "chat.db") as app:
        exchange = FailingFollow(app)
        session = await exchange.create(None)
        await exchange.send(session.id, "hello", request_id="1", if_busy="enqueue")
        person = Person(("interrupt", exchange.delivered))

        with pytest.raises(ValueError, match="unexpected"):
            await ChatLoop(exchange, None).run(person, await exchange.session(session.id))


async def test_a_chat_that_cannot_read_a_turn_reads_no_other_one_on(tmp_path: Path) -> None:
    async with open_app(tmp_path / "chat.db", agent=ScriptedAgent()) as app:
        session = await app.session()
        for text in ("one", "two"):
            await (await session.send(text)).outcome()
    async with nothing_left(tmp_path / "chat.db") as app:
        exchange = FailingTurns(app)

        with pytest.raises(NotFound):
            await ChatLoop(exchange, None).run(Person(), await exchange.session(session.id))
