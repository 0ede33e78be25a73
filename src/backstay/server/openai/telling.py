"""Telling: one turn as a stream of this wire, from its beginning or from where a reader was cut off.

The story is always read from the turn's first event, so a stream needs nothing but the log to go on, in any process.
"""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from typing import Protocol

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from backstay.errors import BackstayError
from backstay.model.event import UNSEEN, Cursor, Event, SessionDeleted
from backstay.model.turn import Turn
from backstay.runtime.owned import Lookout
from backstay.runtime.turn import TurnHandle
from backstay.server.call import AnyCall
from backstay.server.caller import Caller
from backstay.server.line import Dismissed, Gone, Line
from backstay.server.logs import log
from backstay.server.openai.items import Value
from backstay.server.openai.narration import Narrator
from backstay.server.service import Service
from backstay.store.port import Store

SESSION_HEADER = "x-session-id"
WRITE_BYTES = 65_536

encode = msgspec.json.Encoder().encode


class Teller(Protocol):
    """Turns the events of a turn into frames."""

    @property
    def over(self) -> bool:
        """Whether there is nothing more to tell."""
        ...

    def tell(self, event: Event) -> bytes:
        """The frames that this event becomes."""
        ...

    def farewell(self) -> bytes:
        """What closes a stream that was told to its end."""
        ...


class ResponseTeller:
    """The events of a response that follow a number."""

    def __init__(self, turn: Turn, after: int = -1) -> None:
        self._narrator, self._after = Narrator(turn), after

    @property
    def over(self) -> bool:
        return self._narrator.over

    def tell(self, event: Event) -> bytes:
        told = self._narrator.tell(event)
        return b"".join(frame(value) for value in told if value["sequence_number"] > self._after)

    def farewell(self) -> bytes:
        return b""


async def until_over(call: AnyCall, turn: TurnHandle) -> None:
    """Wait for the end of a turn, as long as somebody waits for the answer. The turn goes on in any case."""
    with call.service.streams.one_more(call.caller):
        news = asyncio.Event()
        left = asyncio.ensure_future(Line(call.service, call.caller).listen(call.request.receive, news))
        over = asyncio.ensure_future(turn.outcome())
        try:
            await asyncio.wait({left, over}, return_when=asyncio.FIRST_COMPLETED)
            if not over.done():
                raise ClientDisconnect
            over.result()
        finally:
            left.cancel()
            over.cancel()


def frame(value: Value) -> bytes:
    """One event of a response. JSON has no bare line ends, so its data is always one line."""
    return b"event: %s\ndata: %s\n\n" % (str(value["type"]).encode(), encode(value))


class TurnStream:
    """Answers one request with a turn's story, until it ends or the client leaves."""

    def __init__(
        self,
        service: Service,
        caller: Caller,
        turn: Turn,
        teller: Teller,
        *,
        afterwards: Callable[[], None] | None = None,
    ) -> None:
        self._afterwards = afterwards
        self._service, self._caller, self._turn, self._teller = service, caller, turn, teller
        self._line = Line(service, caller)
        self._cursor = Cursor(fence=UNSEEN, number=turn.event - 1)
        self._known = -1
        self._gone = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with ExitStack() as stack:
            if self._afterwards is not None:
                stack.callback(self._afterwards)
            stack.enter_context(self._service.streams.one_more(self._caller))
            owned = self._service.app.owned_by(self._caller.owner)
            lookout = stack.enter_context(owned.lookout([self._turn.session]))
            stack.enter_context(self._service.streams.waking(lookout.news))
            listening = asyncio.create_task(self._line.listen(receive, lookout.news))
            stack.callback(listening.cancel)
            farewell = b": bye\n\n"
            try:
                await self._tell(send, lookout, listening)
                farewell = self._teller.farewell() if self._teller.over else farewell
            except Gone:
                return
            except Dismissed:
                pass
            except BackstayError as error:
                # The store is away, or closed under us: whoever comes back goes on from the last number it saw.
                log.warning("stream ended early", extra={"error": str(error.args[0])})
            await self._line.close(send, farewell)

    async def _tell(self, send: Send, lookout: Lookout, listening: "asyncio.Task[None]") -> None:
        session = self._turn.session
        await self._line.open(send, (SESSION_HEADER.encode(), session.encode()))
        while not (self._service.streams.closing or self._teller.over or self._gone):
            if listening.done():
                raise Gone
            lookout.news.clear()
            head = lookout.head(session)
            if head > self._known:
                await self._tell_page(send, head)
            else:
                await self._line.wait(send, lookout.news)

    async def _tell_page(self, send: Send, head: int) -> None:
        """Send what is new, each write when the socket has taken the one before."""
        owned = self._service.app.owned_by(self._caller.owner)
        page = await owned.read(Store.events_after, self._turn.session, self._cursor)
        if page.gap is not None:
            # What was told cannot be gone on with: it was folded, or lost with a power failure.
            raise Gone
        self._cursor = page.next
        self._known = -1 if page.more else max(head, page.next.number)
        frames = b""
        for event in page.events:
            self._gone = self._gone or isinstance(event.body, SessionDeleted)
            if event.turn == self._turn.id:
                frames += self._teller.tell(event)
            if len(frames) >= WRITE_BYTES:
                await self._line.write(send, frames)
                frames = b""
        await self._line.write(send, frames)
