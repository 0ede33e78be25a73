"""The MCP servers of an agent: the one owner of their connections, which opens them when needed and closes them."""

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from backstay.agents.tool_servers.tool_server import ToolServer, public_name, require_sdk
from backstay.agents.tools import ToolFailed
from backstay.concurrency.child_tasks import child_tasks, run_concurrently
from backstay.model.content import Json

if TYPE_CHECKING:
    from backstay.agents.tool_servers.mcp_connection import McpConnection
    from backstay.agents.tool_servers.remote_tool import RemoteTool

log = logging.getLogger("backstay.agents.tool_servers")

# A server that could not be started is not started again before this many seconds have passed.
_PAUSE_SECONDS = 5.0


class _ServerLink:
    """A server on one event loop: its connection, if it is open, and its tools, once they were read."""

    def __init__(self, server: ToolServer) -> None:
        self._server = server
        self._lock = asyncio.Lock()
        self._connection: McpConnection | None = None
        self._tools: tuple[RemoteTool, ...] = ()
        self._failure: ToolFailed | None = None
        self._paused_until = 0.0

    async def tools(self) -> "tuple[RemoteTool, ...]":
        """Return the tools. A server that cannot be used now has those of before: their calls fail, not the turn."""
        from backstay.agents.tool_servers.remote_tool import remote_tools  # noqa: PLC0415  # an optional extra

        try:
            known = self._connection is not None and not self._connection.over
            connection = await self._open()
            if known and self._server.url:
                # A program is seen to end; of a URL this is the only sign.
                await self._refresh(connection)
                connection = await self._open()
        except ToolFailed as error:
            log.warning("an MCP server cannot be used", extra={"server": self._server.name, "error": str(error)})
            return self._tools
        self._tools = remote_tools(self._server, connection.offered, self.call)
        return self._tools

    async def call(self, name: str, arguments: dict[str, Json], idempotent: bool) -> object:
        """Call a tool of the server, which is started again if it has ended."""
        from backstay.agents.tool_servers.call_result import output_of  # noqa: PLC0415  # an optional extra

        connection = await self._open_for(name)
        try:
            result = await connection.call(name, arguments, idempotent=idempotent)
        except ToolFailed:
            # Only a server that ended may be asked again, and only for a tool that may run twice.
            if not (idempotent and connection.lost):
                raise
            result = await (await self._open_for(name)).call(name, arguments, idempotent=idempotent)
        # On a thread: a result may be long, and its files are decoded.
        return await asyncio.to_thread(output_of, result, public_name(self._server), name, self._server.result_bytes)

    async def _open_for(self, name: str) -> "McpConnection":
        try:
            return await self._open()
        except ToolFailed as error:
            raise ToolFailed(f"{error.args[0]}; {name} did not run") from error

    async def aclose(self) -> None:
        """Close the connection."""
        async with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                await connection.close()

    async def _open(self) -> "McpConnection":
        from backstay.agents.tool_servers.mcp_connection import McpConnection  # noqa: PLC0415

        async with self._lock:
            if self._connection is not None and not self._connection.over:
                return self._connection
            now = asyncio.get_running_loop().time()
            if self._failure is not None and now < self._paused_until:
                raise ToolFailed(str(self._failure.args[0]))
            try:
                self._connection = await McpConnection.open(self._server)
            except ToolFailed as error:
                self._failure, self._paused_until = error, asyncio.get_running_loop().time() + _PAUSE_SECONDS
                raise
            self._failure = None
            return self._connection

    async def _refresh(self, connection: "McpConnection") -> None:
        try:
            await connection.refresh()
        except Exception:  # foreign code may raise anything: the connection is opened again
            log.info("an MCP server is connected again", extra={"server": self._server.name}, exc_info=True)


class ToolServers:
    """The servers of one agent. An agent may serve one app after another, each on an event loop of its own."""

    def __init__(self, servers: Sequence[ToolServer]) -> None:
        for server in servers:
            require_sdk(server)
        self._servers = tuple(servers)
        self._links: dict[asyncio.AbstractEventLoop, list[_ServerLink]] = {}

    async def tools(self) -> "tuple[RemoteTool, ...]":
        """Return the tools of all servers. Those that do not run are started, at the same time."""
        if not self._servers:
            return ()
        found = await run_concurrently([link.tools() for link in self._here()])
        return tuple(tool for tools in found for tool in tools)

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        async with child_tasks() as start:
            closings = [start(link.aclose()) for link in self._links.pop(asyncio.get_running_loop(), [])]
            if closings:
                # Not `gather`: if one cannot be closed, the others still are.
                await asyncio.wait(closings)
            for closing in closings:
                closing.result()

    def _here(self) -> list[_ServerLink]:
        loop = asyncio.get_running_loop()
        if loop not in self._links:
            for dead in [other for other in self._links if other.is_closed()]:
                del self._links[dead]
            self._links[loop] = [_ServerLink(server) for server in self._servers]
        return self._links[loop]
