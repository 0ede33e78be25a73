"""A chat's exchange with a database: the agent answers in this process, or in another on the same store."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from backstay.cli.chat.exchange import Away, Back, Busy, Told
from backstay.errors import StoreUnavailable
from backstay.model.address import Address
from backstay.model.event import UNSEEN, Cursor
from backstay.model.export import Export
from backstay.model.ids import MessageId, SessionId, TurnId
from backstay.model.message import Message
from backstay.model.search import SearchPage
from backstay.model.session import Session
from backstay.model.turn import Turn
from backstay.model.window import Window
from backstay.runtime.app import App
from backstay.runtime.session import SessionHandle
from backstay.store.port import Store

_PAUSE = 0.5


class DirectExchange:
    """An open app, for one owner and one agent."""

    def __init__(self, app: App, *, name: str, owner: str, agent: str) -> None:
        self._owned, self._agent = app.owned_by(owner), agent
        self.name = name

    async def session(self, session: SessionId) -> Session:
        return await self._owned.read(Store.session, session)

    async def resolve(self, address: Address) -> Session:
        return (await self._owned.write(Store.resolve, address)).session

    async def create(self, address: Address | None) -> Session:
        session = await self._owned.write(Store.create)
        return session if address is None else await self.point(address, session.id)

    async def point(self, address: Address, session: SessionId) -> Session:
        return await self._owned.write(Store.point, address, session)

    async def sessions(self, limit: int) -> tuple[Session, ...]:
        return (await self._owned.read(Store.list, limit=limit)).sessions

    async def beginning_with(self, prefix: str, limit: int) -> tuple[Session, ...]:
        return await self._owned.read(Store.beginning_with, prefix, limit=limit)

    async def search(self, text: str) -> SearchPage:
        return await self._owned.read(Store.search, text)

    async def send(self, session: SessionId, text: str, *, request_id: str, if_busy: Busy) -> TurnId:
        return (await self._handle(session).send(text, request_id=request_id, if_busy=if_busy)).id

    async def retry(self, session: SessionId, *, request_id: str) -> TurnId:
        return (await self._handle(session).retry(request_id=request_id)).id

    async def edit(self, session: SessionId, message: MessageId, text: str, *, request_id: str) -> TurnId:
        return (await self._handle(session).edit(message, text, request_id=request_id)).id

    async def cancel(self, turn: TurnId) -> None:
        await (await self._owned.turn(turn)).cancel()

    async def decide(self, turn: TurnId, call: str, *, approved: bool) -> None:
        await self._owned.write(Store.approve if approved else Store.deny, turn, call)

    async def undo(self, session: SessionId) -> None:
        await self._handle(session).undo()

    async def redo(self, session: SessionId) -> None:
        await self._handle(session).redo()

    async def fork(self, session: SessionId) -> Session:
        return await self._owned.write(Store.fork, session)

    async def compact(self, session: SessionId, focus: str) -> None:
        await self._handle(session).compact(focus=focus)

    async def rename(self, session: SessionId, title: str) -> None:
        await self._owned.write(Store.rename, session, title)

    async def messages(self, session: SessionId, last: int) -> tuple[Message, ...]:
        return await self._handle(session).messages(last=last)

    async def turn(self, turn: TurnId) -> Turn:
        return await self._owned.read(Store.turn, turn)

    async def lineage(self, session: SessionId) -> tuple[Window, ...]:
        return await self._owned.read(Store.lineage, session)

    async def export(self, session: SessionId) -> Export:
        return await self._owned.read(Store.export, session)

    async def follow(self, session: SessionId, after: int) -> AsyncGenerator[Told, None]:
        """The story; while the store is away, it is waited for."""
        cursor, away = Cursor(fence=UNSEEN, number=after), False
        while True:
            try:
                async with aclosing(self._handle(session).follow(cursor)) as events:
                    async for event in events:
                        if away:
                            away = False
                            yield Back()
                        yield event
                        cursor = event.cursor
                return
            except StoreUnavailable as error:
                if not away:
                    away = True
                    yield Away(str(error.args[0]))
            await asyncio.sleep(_PAUSE)

    def _handle(self, session: SessionId) -> SessionHandle:
        return self._owned.session(session, agent=self._agent)
