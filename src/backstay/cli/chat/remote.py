"""A chat's exchange with a server: requests under /api, and the one stream, which is taken up again where it broke."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, TypeVar

import httpx2
import msgspec

from backstay.cli.chat.exchange import Away, Back, Busy, Told
from backstay.errors import BackstayError, Conflict, NotFound, StoreUnavailable, StoryChanged
from backstay.model.address import Address
from backstay.model.event import Event, SessionDeleted
from backstay.model.export import Export
from backstay.model.ids import MessageId, SessionId, TurnId
from backstay.model.message import Message, MessagePage
from backstay.model.search import SearchPage
from backstay.model.session import Session
from backstay.model.turn import Call, Turn
from backstay.model.window import Moved, Window
from backstay.server.problems import Problem, Refused

T = TypeVar("T")

# The server gives a sign of life every 15 seconds unless told otherwise; it may be told otherwise.
_SILENCE = 60.0
# A summariser takes its time.
_SUMMARY = 3_600.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
# So many of the newest sessions are looked through for one whose id begins as a person wrote.
_LOOKED_THROUGH = 200


class _Missing(Refused, NotFound):
    """The server has nothing of this name."""


class _Clash(Refused, Conflict):
    """What the server has is not in the state that was assumed."""


class _Away(Refused, StoreUnavailable):
    """The server, or what it needs, is away just now."""


_KINDS: dict[int, type[Refused]] = {404: _Missing, 409: _Clash, 412: _Clash, 503: _Away}


class _Submitted(msgspec.Struct):
    id: TurnId


class _Sessions(msgspec.Struct):
    sessions: tuple[Session, ...]


class _Windows(msgspec.Struct):
    windows: tuple[Window, ...]


class RemoteExchange:
    """A server, asked with a token."""

    def __init__(self, client: httpx2.AsyncClient, *, agent: str) -> None:
        self._client, self._agent = client, agent
        self.name = str(client.base_url)

    # --- which session ----------------------------------------------------------------------------------------------

    async def session(self, session: SessionId) -> Session:
        return await self._ask("GET", f"api/sessions/{session}", Session)

    async def resolve(self, address: Address) -> Session:
        return await self._ask("POST", "api/sessions", Session, {"address": address.spelling})

    async def create(self, address: Address | None) -> Session:
        session = await self._ask("POST", "api/sessions", Session, {})
        return session if address is None else await self.point(address, session.id)

    async def point(self, address: Address, session: SessionId) -> Session:
        return await self._ask("PUT", f"api/sessions/{session}/address", Session, {"address": address.spelling})

    async def sessions(self, limit: int) -> tuple[Session, ...]:
        return (await self._ask("GET", f"api/sessions?limit={limit}", _Sessions)).sessions

    async def beginning_with(self, prefix: str, limit: int) -> tuple[Session, ...]:
        newest = await self.sessions(_LOOKED_THROUGH)
        return tuple(session for session in newest if session.id.startswith(prefix))[:limit]

    async def search(self, text: str) -> SearchPage:
        return await self._ask("GET", "api/search", SearchPage, query={"q": text})

    # --- talking ----------------------------------------------------------------------------------------------------

    async def send(self, session: SessionId, text: str, *, request_id: str, if_busy: Busy) -> TurnId:
        body: dict[str, object] = {"text": text, "agent": self._agent, "if_busy": if_busy}
        return await self._submit(f"api/sessions/{session}/turns", body, request_id)

    async def retry(self, session: SessionId, *, request_id: str) -> TurnId:
        return await self._submit(f"api/sessions/{session}/retry", {}, request_id)

    async def edit(self, session: SessionId, message: MessageId, text: str, *, request_id: str) -> TurnId:
        return await self._submit(f"api/sessions/{session}/messages/{message}/edit", {"text": text}, request_id)

    async def cancel(self, turn: TurnId) -> None:
        await self._ask("POST", f"api/turns/{turn}/cancel", Turn)

    async def decide(self, turn: TurnId, call: str, *, approved: bool) -> None:
        await self._ask("PUT", f"api/turns/{turn}/calls/{call}/decision", Call, {"approved": approved})

    # --- changing one's mind ----------------------------------------------------------------------------------------

    async def undo(self, session: SessionId) -> None:
        await self._ask("POST", f"api/sessions/{session}/undo", Moved)

    async def redo(self, session: SessionId) -> None:
        await self._ask("POST", f"api/sessions/{session}/redo", Moved)

    async def fork(self, session: SessionId) -> Session:
        return await self._ask("POST", f"api/sessions/{session}/fork", Session, {})

    async def compact(self, session: SessionId, focus: str) -> None:
        await self._ask("POST", f"api/sessions/{session}/compact", Window, {"focus": focus}, seconds=_SUMMARY)

    async def rename(self, session: SessionId, title: str) -> None:
        await self._ask("PATCH", f"api/sessions/{session}", Session, {"title": title})

    # --- reading ----------------------------------------------------------------------------------------------------

    async def messages(self, session: SessionId, last: int) -> tuple[Message, ...]:
        return (await self._ask("GET", f"api/sessions/{session}/messages?last={last}", MessagePage)).messages

    async def turn(self, turn: TurnId) -> Turn:
        return await self._ask("GET", f"api/turns/{turn}", Turn)

    async def lineage(self, session: SessionId) -> tuple[Window, ...]:
        return (await self._ask("GET", f"api/sessions/{session}/lineage", _Windows)).windows

    async def export(self, session: SessionId) -> Export:
        return await self._ask("GET", f"api/sessions/{session}/export", Export)

    async def follow(self, session: SessionId, after: int) -> AsyncGenerator[Told, None]:
        """The story, over as many connections as it takes; each begins after the last id of the one before."""
        place, away, pause = _Place(session, after), False, _FIRST_PAUSE
        while True:
            try:
                async for frame in self._frames(place):
                    if away:
                        away, pause = False, _FIRST_PAUSE
                        yield Back()
                    if isinstance(frame, Event):
                        yield frame
                        if isinstance(frame.body, SessionDeleted):
                            return
                reason = "the server closed the stream"
            except (StoreUnavailable, httpx2.RequestError) as error:
                reason = _in_words(error)
            if not away:
                away = True
                yield Away(reason)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _frames(self, place: "_Place") -> AsyncIterator[Event | None]:
        """Each event after the place, which moves along; None once, when the stream is open."""
        timeout = httpx2.Timeout(_SILENCE, connect=10.0)
        async with self._client.stream(
            "GET", "api/events", params=place.query, headers=place.headers, timeout=timeout
        ) as response:
            if response.status_code != 200:
                raise _refusal(response.status_code, await response.aread())
            yield None
            async for frame in _blocks(response.aiter_bytes()):
                if frame.get(b"event") == b"resync":
                    raise StoryChanged
                if frame.get(b"event") == b"story":
                    event = _read(frame[b"data"], Event)
                    place.last = frame[b"id"].decode()
                    yield event

    # --- the wire ---------------------------------------------------------------------------------------------------

    async def _submit(self, path: str, body: dict[str, object], request_id: str) -> TurnId:
        """Until it is known to be accepted: the request id makes of however many requests one turn."""
        pause = _FIRST_PAUSE
        while True:
            try:
                headers = {"idempotency-key": request_id}
                return (await self._ask("POST", path, _Submitted, body, headers=headers)).id
            except StoreUnavailable:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def _ask(
        self,
        method: str,
        path: str,
        answer: type[T],
        body: dict[str, object] | None = None,
        *,
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        seconds: float | None = None,
    ) -> T:
        sent: dict[str, Any] = {"params": query, "headers": headers}  # Any: what httpx2 takes
        if seconds is not None:
            sent["timeout"] = seconds
        if body is not None:
            sent["json"] = body
        try:
            response = await self._client.request(method, path, **sent)
        except httpx2.RequestError as error:
            raise StoreUnavailable(_in_words(error), hint=self._advice(error)) from error
        if not response.is_success:
            raise _refusal(response.status_code, response.content)
        return _read(response.content, answer)

    def _advice(self, error: httpx2.RequestError) -> str:
        if isinstance(error, httpx2.ConnectError):
            return f"Nothing was done. Check that a server runs at {self.name}: `backstay serve` starts one."
        return "It may have been done: look before you repeat it."


class _Place:
    """Where a reader stands: at first after a number, then after the last id it saw."""

    def __init__(self, session: SessionId, after: int) -> None:
        self.query = {"sessions": f"{session}:{after}"}
        self.last: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {"accept": "text/event-stream"} | ({"last-event-id": self.last} if self.last else {})


async def _blocks(pieces: AsyncIterator[bytes]) -> AsyncIterator[dict[bytes, bytes]]:
    """The fields of each event. Only a line feed ends a line: what people write may hold every other line end."""
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n\n")
        for block in whole:
            lines = (line.partition(b": ") for line in block.split(b"\n"))
            yield {name: value for name, _, value in lines}


def _read(content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BackstayError(
            "the server says something that cannot be understood",
            hint="Check that --server is the URL of a Backstay server, and that it is no newer than this program.",
        ) from error


def _refusal(status: int, body: bytes) -> BackstayError:
    """What a server says when it does not do what it was asked, as the error it is here."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, UnicodeError):
        problem = Problem(
            status=status,
            code="foreign",
            title="the server answered with something unexpected",
            hint="Check that --server is the URL of a Backstay server.",
        )
    return _KINDS.get(status, Refused)(problem.status, problem.code, problem.title, hint=problem.hint)


def _in_words(error: BackstayError | httpx2.RequestError) -> str:
    if isinstance(error, BackstayError):
        return str(error.args[0])
    if isinstance(error, httpx2.ConnectError):
        return "the server cannot be reached"
    return f"the connection to the server broke ({type(error).__name__})"
