"""The streams to an MCP server: the pipes of a program in a process of its own, or HTTP requests to a URL."""

import asyncio
import inspect
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from backstay.agents.programs.child_process import Child, find_program
from backstay.agents.programs.environment import child_environment
from backstay.agents.roots import AgentRoots
from backstay.agents.tool_servers.tool_server import ToolServer
from backstay.agents.tools import ToolFailed
from backstay.concurrency.child_tasks import child_tasks, run_to_end

log = logging.getLogger("backstay.agents.tool_servers")

# Room for a result's frame, and for the escapes of its text.
_FRAME_BYTES = 1 << 20


_Pair = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class ServerStreams(NamedTuple):
    """Both directions, and an event that is set when the server has ended."""

    both: Transport
    ended: asyncio.Event


@asynccontextmanager
async def _pipes(
    server: ToolServer, ended: asyncio.Event
) -> AsyncGenerator[
    tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]
]:
    """Start the program; end it, and what it started, at the end of the block."""
    child = await _start(server)
    to_session, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sent, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    reading = asyncio.create_task(_read(server, child, to_session, ended), name=f"output of {server.name}")
    writing = asyncio.create_task(_write(child, from_session), name=f"input of {server.name}")
    try:
        yield received, sent
    finally:
        for stream in (to_session, received, sent, from_session):
            stream.close()
        # A cancellation of this task does not leave the program running.
        await run_to_end(_end(child, (reading, writing)), f"end of {server.name}")


async def _end(child: Child, tasks: Iterable["asyncio.Task[None]"]) -> None:
    """End the program. Its output is read to the end, since its process is not seen to end before."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with child_tasks() as start:
        start(_drain(child))
        await child.close()


async def _drain(child: Child) -> None:
    while piece := await child.stdout.read(1 << 16):
        del piece
        await asyncio.sleep(0)


async def _start(server: ToolServer) -> Child:
    environment = child_environment(os.environ, server.pass_environment, server.env)
    program = find_program(server.command, environment)
    if program is None:
        raise ToolFailed(f"there is no program {server.command[0]!r}", hint="Install it, or correct the command.")
    directory = server.cwd or str(await asyncio.to_thread(Path.cwd))
    command, roots = [program, *server.command[1:]], AgentRoots.of([directory])
    starting = asyncio.create_task(Child.start(command, directory, environment, roots))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # The start is not interrupted: it would leave a program that never ends.
        child = await starting
        await _end(child, ())
        raise


async def _read(
    server: ToolServer,
    child: Child,
    to_session: MemoryObjectSendStream[SessionMessage | Exception],
    ended: asyncio.Event,
) -> None:
    """Pass the messages of the program on, one per line. A line that is too long ends the connection."""
    try:
        while line := await child.stdout.readline():
            if len(line) > server.result_bytes + _FRAME_BYTES:
                log.warning("an MCP server wrote a line that is too long", extra={"server": server.name})
                return
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                log.debug("an MCP server wrote a line that is not a message", extra={"server": server.name})
                await asyncio.sleep(0)
                continue
            await to_session.send(SessionMessage(message))
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return  # The connection is being closed; the program may write until it ends.
    except (ValueError, OSError):
        log.warning("the output of an MCP server cannot be read", extra={"server": server.name}, exc_info=True)
    finally:
        ended.set()
        to_session.close()


async def _write(child: Child, from_session: MemoryObjectReceiveStream[SessionMessage]) -> None:
    try:
        async for one in from_session:
            child.stdin.write(one.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await child.stdin.drain()
    except OSError:
        return  # It has ended; the other direction notices.


@asynccontextmanager
async def _requests(
    server: ToolServer,
) -> AsyncGenerator[
    tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]
]:
    """Connect to the URL. The SDK follows a redirect only within the origin of the URL."""

    async def limit(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.DecodingError("the server compressed its answer, which was not accepted")
        if isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _LimitedStream(response.stream, server.result_bytes + _FRAME_BYTES)

    headers = {"accept-encoding": "identity"}
    if token := os.environ.get(server.token_variable or "", ""):
        headers["authorization"] = f"Bearer {token}"
    timeout = httpx2.Timeout(server.start_seconds, read=server.call_seconds)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks={"response": [limit]}) as client,
        _open_url(server, client) as streams,
    ):
        yield streams  # type: ignore[misc]  # the SDK's streams also carry a context


def _open_url(server: ToolServer, client: httpx2.AsyncClient) -> Transport:
    """Return the SDK's transport. Newer SDKs reject an event of more than 1 MiB, unless our own limit is passed."""
    limit = {"max_sse_event_size": server.result_bytes + _FRAME_BYTES}
    connect: Callable[..., Transport] = streamable_http_client
    accepted = inspect.signature(streamable_http_client).parameters
    return connect(server.url, http_client=client, **(limit if limit.keys() <= accepted.keys() else {}))


class _LimitedStream(httpx2.AsyncByteStream):
    """The body of a response, which fails when it gets too long."""

    def __init__(self, body: httpx2.AsyncByteStream, limit: int) -> None:
        self._body, self._left = body, limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._body:
            self._left -= len(piece)
            if self._left < 0:
                raise httpx2.ReadError("the answer of the server is too long")
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


def streams_to(server: ToolServer) -> ServerStreams:
    """Return the streams to a server; they open when they are entered."""
    ended = asyncio.Event()
    return ServerStreams(_requests(server) if server.url else _pipes(server, ended), ended)
