"""The exchange with a server: requests under /api, and an SSE stream that resumes where it broke."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, BinaryIO, TypeVar

import httpx2
import msgspec

from backstay.cli.chat.exchange import Away, Back, Busy, ChatEvent
from backstay.errors import BackstayError, Conflict, HistoryChanged, NotFound, StoreUnavailable
from backstay.model.addresses.address import Address
from backstay.model.event import Event, SessionDeleted
from backstay.model.ids import MessageId, SessionId, TurnId
from backstay.model.message import Message, MessagePage
from backstay.model.search.results import SearchPage
from backstay.model.session import SessionInfo
from backstay.model.turn import ToolCallRecord, TurnInfo
from backstay.model.window import Moved, Window
from backstay.server.http.problems import Problem, Refused

T = TypeVar("T")

# The server sends a heartbeat every 15 seconds by default; a setting may make this longer.
_SILENCE = 60.0
# A summariser may take long.
_SUMMARY = 3_600.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
# The number of newest sessions that are searched for an id prefix.
_LOOKED_THROUGH = 200


class _Missing(Refused, NotFound):
    """The server answered 404: not found."""


class _Clash(Refused, Conflict):
    """The server answered 409 or 412: the resource is not in the expected state."""


class _Away(Refused, StoreUnavailable):
    """The server answered 503: it or its store is unavailable now."""


_KINDS: dict[int, type[Refused]] = {404: _Missing, 409: _Clash, 412: _Clash, 503: _Away}


class _Submitted(msgspec.Struct):
    id: TurnId


class _Sessions(msgspec.Struct):
    sessions: tuple[SessionInfo, ...]


class _Windows(msgspec.Struct):
    windows: tuple[Window, ...]


class RemoteExchange:
    """A server that is accessed with a token."""

    def __init__(self, client: httpx2.AsyncClient, *, agent: str) -> None:
        self._client, self._agent = client, agent
        self.name = str(client.base_url)

    # --- sessions ---------------------------------------------------------------------------------------------------

    async def session(self, session: SessionId) -> SessionInfo:
        return await self._ask("GET", f"api/sessions/{session}", SessionInfo)

    async def resolve(self, address: Address) -> SessionInfo:
        return await self._ask("POST", "api/sessions", SessionInfo, {"address": address.spelling})

    async def create(self, address: Address | None) -> SessionInfo:
        session = await self._ask("POST", "api/sessions", SessionInfo, {})
        return session if address is None else await self.point(address, session.id)

    async def point(self, address: Address, session: SessionId) -> SessionInfo:
        return await self._ask("PUT", f"api/sessions/{session}/address", SessionInfo, {"address": address.spelling})

    async def sessions(self, limit: int) -> tuple[SessionInfo, ...]:
        return (await self._ask("GET", f"api/sessions?limit={limit}", _Sessions)).sessions

    async def beginning_with(self, prefix: str, limit: int) -> tuple[SessionInfo, ...]:
        newest = await self.sessions(_LOOKED_THROUGH)
        return tuple(session for session in newest if session.id.startswith(prefix))[:limit]

    async def search(self, text: str) -> SearchPage:
        return await self._ask("GET", "api/search", SearchPage, query={"q": text})

    # --- turns ------------------------------------------------------------------------------------------------------

    async def send(self, session: SessionId, text: str, *, request_id: str, if_busy: Busy) -> TurnId:
        body: dict[str, object] = {"text": text, "agent": self._agent, "if_busy": if_busy}
        return await self._submit(f"api/sessions/{session}/turns", body, request_id)

    async def retry(self, session: SessionId, *, request_id: str) -> TurnId:
        return await self._submit(f"api/sessions/{session}/retry", {}, request_id)

    async def edit(self, session: SessionId, message: MessageId, text: str, *, request_id: str) -> TurnId:
        return await self._submit(f"api/sessions/{session}/messages/{message}/edit", {"text": text}, request_id)

    async def cancel(self, turn: TurnId) -> None:
        await self._ask("POST", f"api/turns/{turn}/cancel", TurnInfo)

    async def decide(self, turn: TurnId, call: str, *, approved: bool) -> None:
        await self._ask("PUT", f"api/turns/{turn}/calls/{call}/decision", ToolCallRecord, {"approved": approved})

    async def rerun(self, turn: TurnId, call: str) -> None:
        body: dict[str, object] = {"approved": True, "run_again": True}
        await self._ask("PUT", f"api/turns/{turn}/calls/{call}/decision", ToolCallRecord, body)

    async def resume(self, turn: TurnId) -> None:
        await self._ask("POST", f"api/turns/{turn}/resume", _Submitted)

    # --- changing the history ---------------------------------------------------------------------------------------

    async def undo(self, session: SessionId) -> None:
        await self._ask("POST", f"api/sessions/{session}/undo", Moved)

    async def redo(self, session: SessionId) -> None:
        await self._ask("POST", f"api/sessions/{session}/redo", Moved)

    async def fork(self, session: SessionId) -> SessionInfo:
        return await self._ask("POST", f"api/sessions/{session}/fork", SessionInfo, {})

    async def compact(self, session: SessionId, focus: str) -> None:
        await self._ask("POST", f"api/sessions/{session}/compact", Window, {"focus": focus}, seconds=_SUMMARY)

    async def rename(self, session: SessionId, title: str) -> None:
        await self._ask("PATCH", f"api/sessions/{session}", SessionInfo, {"title": title})

    # --- reading ----------------------------------------------------------------------------------------------------

    async def messages(self, session: SessionId, last: int) -> tuple[Message, ...]:
        return (await self._ask("GET", f"api/sessions/{session}/messages?last={last}", MessagePage)).messages

    async def turn(self, turn: TurnId) -> TurnInfo:
        return await self._ask("GET", f"api/turns/{turn}", TurnInfo)

    async def lineage(self, session: SessionId) -> tuple[Window, ...]:
        return (await self._ask("GET", f"api/sessions/{session}/lineage", _Windows)).windows

    async def export_to(self, session: SessionId, file: BinaryIO) -> None:
        try:
            async with self._client.stream("GET", f"api/sessions/{session}/export") as response:
                if not response.is_success:
                    raise _refusal(response.status_code, await response.aread())
                async for piece in response.aiter_bytes():
                    await asyncio.to_thread(file.write, piece)
        except httpx2.RequestError as error:
            raise StoreUnavailable(_in_words(error), hint="Nothing was changed. Try again.") from error

    async def follow(self, session: SessionId, after: int) -> AsyncGenerator[ChatEvent, None]:
        """Yield events over as many connections as needed; each starts after the last event id of the one before."""
        place, away, pause = _RemotePosition(session, after), False, _FIRST_PAUSE
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

    async def _frames(self, place: "_RemotePosition") -> AsyncIterator[Event | None]:
        """Yield None once when the stream is open, then each event after the position, which advances."""
        timeout = httpx2.Timeout(_SILENCE, connect=10.0)
        async with self._client.stream(
            "GET", "api/events", params=place.query, headers=place.headers, timeout=timeout
        ) as response:
            if response.status_code != 200:
                raise _refusal(response.status_code, await response.aread())
            yield None
            async for frame in _blocks(response.aiter_bytes()):
                if frame.get(b"event") == b"resync":
                    raise HistoryChanged
                if frame.get(b"event") == b"story":
                    event = _read(frame[b"data"], Event)
                    place.last = frame[b"id"].decode()
                    yield event

    # --- HTTP -------------------------------------------------------------------------------------------------------

    async def _submit(self, path: str, body: dict[str, object], request_id: str) -> TurnId:
        """Retry until the turn is accepted: the request id makes one turn of all attempts."""
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
        sent: dict[str, Any] = {"params": query, "headers": headers}  # Any: arguments of httpx2
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
            return f"Nothing was changed. Check that a server runs at {self.name}: `backstay serve` starts one."
        return "The request may have been executed: check before you repeat it."


class _RemotePosition:
    """A position in the event stream: a number at first, then the last event id received."""

    def __init__(self, session: SessionId, after: int) -> None:
        self.query = {"sessions": f"{session}:{after}"}
        self.last: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {"accept": "text/event-stream"} | ({"last-event-id": self.last} if self.last else {})


async def _blocks(pieces: AsyncIterator[bytes]) -> AsyncIterator[dict[bytes, bytes]]:
    """Yield the fields of each SSE event. Only a line feed ends a line: texts may hold every other line end."""
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
            "the server sent an invalid response",
            hint="Check that --server is the URL of a Backstay server, and that it is not newer than this program.",
        ) from error


def _refusal(status: int, body: bytes) -> BackstayError:
    """Convert an error response of the server to the matching exception."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, UnicodeError):
        problem = Problem(
            status=status,
            code="foreign",
            title="the server sent an unexpected response",
            hint="Check that --server is the URL of a Backstay server.",
        )
    return _KINDS.get(status, Refused)(problem.status, problem.code, problem.title, hint=problem.hint)


def _in_words(error: BackstayError | httpx2.RequestError) -> str:
    if isinstance(error, BackstayError):
        return str(error.args[0])
    if isinstance(error, httpx2.ConnectError):
        return "the server cannot be reached"
    return f"the connection to the server broke ({type(error).__name__})"
