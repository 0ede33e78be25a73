"""The exchange with a server: the client's handles, and a send that does not give up."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO, Literal

from backstay.cli.chat.exchange import Busy, ChatEvent, Disconnected, Reconnected
from backstay.client import api_calls
from backstay.client.client import Client
from backstay.client.session_client import SessionClient
from backstay.client.turn_client import TurnClient
from backstay.clock import machine_zone
from backstay.errors import StoreUnavailable
from backstay.model.addresses.address import Address
from backstay.model.content import Attachment, Content, Text
from backstay.model.event import Event
from backstay.model.ids import MessageId, SessionId, TurnId
from backstay.model.message import Message
from backstay.model.schedules.schedule import Schedule
from backstay.model.search.results import SearchPage
from backstay.model.session import SessionInfo
from backstay.model.turn import TurnInfo
from backstay.model.window import Window

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0


class RemoteExchange:
    """A client of a server, for one agent."""

    def __init__(self, client: Client, *, agent: str) -> None:
        self._client, self._agent = client, agent
        self.name = client.url

    async def session(self, session: SessionId) -> SessionInfo:
        return await self._handle(session).read()

    async def resolve(self, address: Address) -> SessionInfo:
        return (await self._client.resolve(address)).session

    async def create(self, address: Address | None) -> SessionInfo:
        session = await self._client.session()
        return await (session.read() if address is None else session.point(address))

    async def point(self, address: Address, session: SessionId) -> SessionInfo:
        return await self._handle(session).point(address)

    async def sessions(self, limit: int) -> tuple[SessionInfo, ...]:
        return (await self._client.sessions(limit=limit)).sessions

    async def beginning_with(self, prefix: str, limit: int) -> tuple[SessionInfo, ...]:
        return await self._client.beginning_with(prefix, limit=limit)

    async def ending_with(self, letters: str, limit: int) -> tuple[SessionInfo, ...]:
        return (await self._client.run(api_calls.ending_with(letters, limit))).sessions

    async def search(self, text: str) -> SearchPage:
        return await self._client.search(text)

    async def upload(self, path: Path) -> Attachment:
        return await self._client.upload(path)

    async def send(
        self, session: SessionId, text: str, *, request_id: str, if_busy: Busy, files: Sequence[Attachment] = ()
    ) -> TurnId:
        content: Content = [Text(text), *files] if files else text
        return await _accepted(lambda: self._handle(session).send(content, request_id=request_id, if_busy=if_busy))

    async def retry(self, session: SessionId, *, request_id: str) -> TurnId:
        return await _accepted(lambda: self._handle(session).retry(request_id=request_id))

    async def edit(self, session: SessionId, message: MessageId, text: str, *, request_id: str) -> TurnId:
        return await _accepted(lambda: self._handle(session).edit(message, text, request_id=request_id))

    async def cancel(self, turn: TurnId) -> None:
        await (await self._client.turn(turn)).cancel()

    async def decide(self, turn: TurnId, call: str, *, approved: bool) -> None:
        handle = await self._client.turn(turn)
        await (handle.approve(call) if approved else handle.deny(call))

    async def rerun(self, turn: TurnId, call: str) -> None:
        await (await self._client.turn(turn)).approve(call, run_again=True)

    async def resume(self, turn: TurnId) -> None:
        await self._client.resume(turn)

    async def undo(self, session: SessionId) -> None:
        await self._handle(session).undo()

    async def redo(self, session: SessionId) -> None:
        await self._handle(session).redo()

    async def fork(self, session: SessionId) -> SessionInfo:
        return await (await self._handle(session).fork()).read()

    async def compact(self, session: SessionId, focus: str) -> None:
        await self._handle(session).compact(focus=focus)

    async def rename(self, session: SessionId, title: str) -> None:
        await self._handle(session).rename(title)

    async def remind(self, session: SessionId, when: str, text: str, *, request_id: str) -> Schedule:
        return await self._client.create_schedule(
            when, session, text, agent=self._agent, zone=machine_zone(), request_id=request_id
        )

    async def messages(self, session: SessionId, last: int) -> tuple[Message, ...]:
        return await self._handle(session).messages(last=last)

    async def turn(self, turn: TurnId) -> TurnInfo:
        return await (await self._client.turn(turn)).read()

    async def lineage(self, session: SessionId) -> tuple[Window, ...]:
        return await self._handle(session).lineage()

    async def export_to(self, session: SessionId, file: BinaryIO) -> None:
        await self._handle(session).export_to(file)

    async def follow(self, session: SessionId, after: int) -> AsyncGenerator[ChatEvent, None]:
        """Yield the events, and when the stream is lost and open again."""
        state: Literal["open", "away"] = "open"
        async with aclosing(self._client.stream(session, after)) as stream:
            async for one in stream:
                if isinstance(one, Event):
                    yield one
                elif one.reason is None and state == "away":
                    state = "open"
                    yield Reconnected()
                elif one.reason is not None and state == "open":
                    state = "away"
                    yield Disconnected(one.reason)

    def _handle(self, session: SessionId) -> SessionClient:
        return self._client.handle(session, agent=self._agent)


async def _accepted(submit: Callable[[], Awaitable[TurnClient]]) -> TurnId:
    """Submit until the turn is accepted: the request id makes one turn of all attempts."""
    pause = _FIRST_PAUSE
    while True:
        try:
            return (await submit()).id
        except StoreUnavailable:
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
