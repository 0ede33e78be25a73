"""A fake provider of models on a free local port. It answers each request with the next of its plays."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

Json = Any
Play = Callable[["Reply"], Awaitable[None]]


class Request(NamedTuple):
    path: str
    headers: dict[str, str]
    body: Json
    raw: bytes


class Dropped(Exception):
    """The play cut the connection."""


class Reply:
    """One response on one connection, which a play writes."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def head(self, status: int, **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} So", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
        await self._write(("\r\n".join(lines) + "\r\n\r\n").encode())

    async def stream(self, kind: str = "text/event-stream") -> None:
        await self.head(200, content_type=kind, transfer_encoding="chunked")

    async def send(self, data: bytes) -> None:
        await self._write(b"%x\r\n%s\r\n" % (len(data), data))

    async def raw(self, data: bytes) -> None:
        await self._write(data)

    async def end(self) -> None:
        await self._write(b"0\r\n\r\n")

    async def stall(self) -> None:
        await asyncio.Event().wait()

    def drop(self) -> None:
        self._writer.close()
        raise Dropped

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


class FakeProvider:
    """Listens inside an `async with`, and remembers the requests."""

    def __init__(self, *plays: Play) -> None:
        self._plays = list(plays)
        self._actors: set[asyncio.Task[None]] = set()
        self.requests: list[Request] = []
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.base_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for actor in self._actors:
            actor.cancel()
        await asyncio.gather(*self._actors, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        actor = asyncio.current_task()
        assert actor is not None
        self._actors.add(actor)
        try:
            while True:
                self.requests.append(await _request(reader))
                play = self._plays.pop(0) if self._plays else refuses(418, "there is no further play")
                await play(Reply(writer))
        except (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError, Dropped):
            pass
        finally:
            self._actors.discard(actor)
            writer.close()


async def _request(reader: asyncio.StreamReader) -> Request:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(first.split()[1], headers, json.loads(body), body)


# The bytes on the wire.


def event(value: Json) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def chunk(delta: Json, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return event({"object": "chat.completion.chunk", "model": "tiny-1", "choices": [choice]})


def words(text: str) -> bytes:
    return chunk({"content": text})


def wants(index: int | None, id: str | None, name: str | None, arguments: Json) -> bytes:
    call = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return chunk({"tool_calls": [call]})


def finish(reason: str = "stop") -> bytes:
    return chunk({}, reason)


def tally(**counts: Json) -> bytes:
    return event({"choices": [], "usage": counts})


DONE = b"data: [DONE]\n\n"


# Plays.


def says(*data: bytes, kind: str = "text/event-stream") -> Play:
    """Streams these bytes, each piece separately, and ends correctly."""

    async def play(reply: Reply) -> None:
        await reply.stream(kind)
        for piece in data:
            await reply.send(piece)
        await reply.end()

    return play


def answers(text: str) -> Play:
    """A complete answer."""
    return says(chunk({"role": "assistant", "content": ""}), words(text), finish(), DONE)


def calls(*wanted: bytes) -> Play:
    """A complete request for tools."""
    return says(*wanted, finish("tool_calls"), DONE)


def breaks_after(*data: bytes) -> Play:
    """Streams these bytes and cuts the connection."""

    async def play(reply: Reply) -> None:
        await reply.stream()
        for piece in data:
            await reply.send(piece)
        reply.drop()

    return play


def stalls_after(*data: bytes) -> Play:
    """Streams these bytes and then sends nothing more."""

    async def play(reply: Reply) -> None:
        await reply.stream()
        for piece in data:
            await reply.send(piece)
        await reply.stall()

    return play


def refuses(status: int, body: Json = "", **headers: str) -> Play:
    """Answers with this status and body, a text or JSON."""

    async def play(reply: Reply) -> None:
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        await reply.head(status, content_length=str(len(data)), **headers)
        await reply.raw(data)

    return play


async def hangs_up(reply: Reply) -> None:
    """Closes the connection without a response."""
    reply.drop()


async def says_nothing(reply: Reply) -> None:
    """Accepts the request and never answers."""
    await reply.stall()
