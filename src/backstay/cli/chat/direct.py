"""A chat's exchange with a database: the agent answers in this process, or in another on the same store."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO

from backstay.cli.chat.exchange import Busy, ChatEvent, Disconnected, Reconnected
from backstay.clock import machine_zone
from backstay.errors import StoreUnavailable
from backstay.model.addresses.address import Address
from backstay.model.content import Attachment, Content, Text
from backstay.model.event import UNSEEN, Cursor
from backstay.model.ids import MessageId, SessionId, TurnId
from backstay.model.message import Message
from backstay.model.schedules.schedule import Schedule
from backstay.model.search.results import SearchPage
from backstay.model.session import SessionInfo
from backstay.model.turn import TurnInfo
from backstay.model.window import Window
from backstay.runtime.app import App
from backstay.runtime.session_handle import Session
from backstay.store import commands

_PAUSE = 0.5


class DirectExchange:
    """An open app, for one owner and one agent."""

    def __init__(self, app: App, *, name: str, owner: str, agent: str) -> None:
        self._owned, self._agent = app.owned_by(owner), agent
        self.name = name

    async def session(self, session: SessionId) -> SessionInfo:
        return await self._owned.run(commands.session(session, owner=self._owned.owner))

    async def resolve(self, address: Address) -> SessionInfo:
        return (await self._owned.run(commands.resolve(address, owner=self._owned.owner))).session

    async def create(self, address: Address | None) -> SessionInfo:
        session = await self._owned.run(commands.create(owner=self._owned.owner))
        return session if address is None else await self.point(address, session.id)

    async def point(self, address: Address, session: SessionId) -> SessionInfo:
        return await self._owned.run(commands.point(address, session, owner=self._owned.owner))

    async def sessions(self, limit: int) -> tuple[SessionInfo, ...]:
        return (await self._owned.run(commands.list_sessions(limit=limit, owner=self._owned.owner))).sessions

    async def beginning_with(self, prefix: str, limit: int) -> tuple[SessionInfo, ...]:
        return await self._owned.run(commands.beginning_with(prefix, limit=limit, owner=self._owned.owner))

    async def ending_with(self, letters: str, limit: int) -> tuple[SessionInfo, ...]:
        return await self._owned.run(commands.ending_with(letters, limit=limit, owner=self._owned.owner))

    async def search(self, text: str) -> SearchPage:
        return await self._owned.search(text)

    async def upload(self, path: Path) -> Attachment:
        return await self._owned.upload(path)

    async def send(
        self, session: SessionId, text: str, *, request_id: str, if_busy: Busy, files: Sequence[Attachment] = ()
    ) -> TurnId:
        content: Content = [Text(text), *files] if files else text
        return (await self._handle(session).send(content, request_id=request_id, if_busy=if_busy)).id

    async def retry(self, session: SessionId, *, request_id: str) -> TurnId:
        return (await self._handle(session).retry(request_id=request_id)).id

    async def edit(self, session: SessionId, message: MessageId, text: str, *, request_id: str) -> TurnId:
        return (await self._handle(session).edit(message, text, request_id=request_id)).id

    async def cancel(self, turn: TurnId) -> None:
        await (await self._owned.turn(turn)).cancel()

    async def decide(self, turn: TurnId, call: str, *, approved: bool) -> None:
        decide = commands.approve if approved else commands.deny
        await self._owned.run(decide(turn, call, owner=self._owned.owner))

    async def rerun(self, turn: TurnId, call: str) -> None:
        await self._owned.run(commands.approve(turn, call, owner=self._owned.owner, run_again=True))

    async def resume(self, turn: TurnId) -> None:
        await self._owned.resume(turn)

    async def undo(self, session: SessionId) -> None:
        await self._handle(session).undo()

    async def redo(self, session: SessionId) -> None:
        await self._handle(session).redo()

    async def fork(self, session: SessionId) -> SessionInfo:
        return await self._owned.run(commands.fork(session, owner=self._owned.owner))

    async def compact(self, session: SessionId, focus: str) -> None:
        await self._handle(session).compact(focus=focus)

    async def rename(self, session: SessionId, title: str) -> None:
        await self._owned.run(commands.rename(session, title, owner=self._owned.owner))

    async def remind(self, session: SessionId, when: str, text: str, *, request_id: str) -> Schedule:
        return await self._owned.create_schedule(
            when, session, text, agent=self._agent, zone=machine_zone(), request_id=request_id
        )

    async def messages(self, session: SessionId, last: int) -> tuple[Message, ...]:
        return await self._handle(session).messages(last=last)

    async def turn(self, turn: TurnId) -> TurnInfo:
        return await self._owned.run(commands.turn(turn, owner=self._owned.owner))

    async def lineage(self, session: SessionId) -> tuple[Window, ...]:
        return await self._owned.run(commands.lineage(session, owner=self._owned.owner))

    async def export_to(self, session: SessionId, file: BinaryIO) -> None:
        await self._owned.handle(session).export_to(file)

    async def follow(self, session: SessionId, after: int) -> AsyncGenerator[ChatEvent, None]:
        """Yield the events; while the store is unavailable, wait for it."""
        cursor, disconnected = Cursor(fence=UNSEEN, number=after), False
        while True:
            try:
                async with aclosing(self._handle(session).follow(cursor)) as events:
                    async for event in events:
                        if disconnected:
                            disconnected = False
                            yield Reconnected()
                        yield event
                        cursor = event.cursor
                return
            except StoreUnavailable as error:
                if not disconnected:
                    disconnected = True
                    yield Disconnected(str(error.args[0]))
            await asyncio.sleep(_PAUSE)

    def _handle(self, session: SessionId) -> Session:
        return self._owned.handle(session, agent=self._agent)
