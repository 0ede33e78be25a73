"""A connection to an MCP server: one task opens it, holds it, and closes it with all that belongs to it."""

import asyncio
import logging
from importlib.metadata import version

from mcp import ClientSession, MCPError
from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult, Implementation
from mcp.types import Tool as OfferedTool
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR, REQUEST_TIMEOUT
from pydantic import ValidationError

from backstay.agents.tool_servers.remote_tool import offered_tools
from backstay.agents.tool_servers.server_streams import streams_to
from backstay.agents.tool_servers.tool_server import ToolServer, public_name, without_host
from backstay.agents.tools import MayHaveRun, ToolFailed
from backstay.concurrency.child_tasks import wait_for_first
from backstay.errors import BackstayError
from backstay.model.content import Json

log = logging.getLogger("backstay.agents.tool_servers")

# After these errors it is not known whether the tool ran.
_MAY_HAVE_RUN = frozenset({CONNECTION_CLOSED, REQUEST_TIMEOUT, PARSE_ERROR})
_REASON_LETTERS = 500
_CLOSE_SECONDS = 8.0


class McpConnection:
    """An open connection. It is used until the server ends, or does not answer in time; then calls need another one."""

    def __init__(self, server: ToolServer) -> None:
        self._server = server
        self._stopping = asyncio.Event()
        self._opened: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(), name=f"MCP server {server.name}")
        self._calls = 0
        self._retired = False
        # Whether the server ended, other than by its own answer or our limit of time.
        self.lost = False
        self.offered: list[OfferedTool] = []

    @property
    def over(self) -> bool:
        """Whether it accepts no more calls."""
        return self._retired or self._stopping.is_set() or self._task.done()

    @classmethod
    async def open(cls, server: ToolServer) -> "McpConnection":
        """Start or reach the server, and read its tools. Raises `ToolFailed`."""
        connection = cls(server)
        try:
            async with asyncio.timeout(server.start_seconds):
                await asyncio.shield(connection._opened)
        except BaseException as error:
            await connection.close()
            if isinstance(error, TimeoutError):
                raise ToolFailed(f"{public_name(server)} did not answer within {server.start_seconds:g} s") from error
            raise
        return connection

    async def refresh(self) -> None:
        """Read the list of tools again. A server that does not answer is not used any more."""
        session = await self._opened
        try:
            async with asyncio.timeout(self._server.start_seconds):
                self.offered = await offered_tools(session)
        except Exception:
            self._retire()
            raise

    async def call(self, name: str, arguments: dict[str, Json], *, idempotent: bool) -> CallToolResult:
        """Call a tool.

        Raises:
            ToolFailed: The server refused the call, or it can be repeated.
            MayHaveRun: The connection was lost, or the server did not answer in time.
        """
        session = await self._opened
        request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=dict(arguments)))
        self._calls += 1
        try:
            # Not `session.call_tool`: it validates results by a schema of the server, which may name other hosts.
            return await session.send_request(
                request, CallToolResult, request_read_timeout_seconds=self._server.call_seconds
            )
        except MCPError as error:
            raise self._failure(error, name, idempotent=idempotent) from error
        except (ValidationError, ValueError, RuntimeError) as error:
            raise ToolFailed(f"{public_name(self._server)} returned a malformed result") from error
        finally:
            self._calls -= 1
            self._end_if_unused()

    async def close(self) -> None:
        """End the connection, and a program with it. Returns when both have ended."""
        self._stopping.set()
        if not self._opened.done():
            self._task.cancel()
        _, late = await asyncio.wait({self._task}, timeout=_CLOSE_SECONDS)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_CLOSE_SECONDS)

    def _failure(self, error: MCPError, name: str, *, idempotent: bool) -> BackstayError:
        self.lost = self.lost or error.code == CONNECTION_CLOSED
        server = public_name(self._server)
        may_have_run = error.code in _MAY_HAVE_RUN or (bool(self._server.url) and error.code == INTERNAL_ERROR)
        if may_have_run or error.code == INVALID_REQUEST:
            self._retire()
        if may_have_run and not idempotent:
            return MayHaveRun(f"{server} did not return a result of {name}; it is not known whether it ran")
        return ToolFailed(f"{server} did not return a result: {self._reason(error)}")

    def _retire(self) -> None:
        """Use it for no further call; those under way may still end."""
        self._retired = True
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        if self._retired and not self._calls:
            self._stopping.set()

    async def _run(self) -> None:
        """Open the connection, keep it until it ends or is closed, and close it in this same task."""
        streams = streams_to(self._server)
        try:
            async with (
                streams.both as (received, sent),
                ClientSession(
                    received, sent, client_info=Implementation(name="backstay", version=version("backstay"))
                ) as session,
            ):
                await session.initialize()
                self.offered = await offered_tools(session)
                if not self._opened.done():
                    self._opened.set_result(session)
                await wait_for_first(streams.ended, self._stopping)
        except Exception as error:  # noqa: BLE001  # foreign: the callers get it as a `ToolFailed`
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if self._opened.done():
            log.info("the connection to an MCP server ended", extra={"server": self._server.name}, exc_info=error)
            return
        failed = ToolFailed(f"{public_name(self._server)} cannot be used: {self._reason(error)}")
        failed.__cause__ = error
        self._opened.set_exception(failed)
        self._opened.exception()  # Retrieved: perhaps no task awaits it any more.

    def _reason(self, error: Exception) -> str:
        """Why the server failed, without its host. The text of a foreign exception is for the log only."""
        match error:
            case MCPError():
                text = error.message
            case BackstayError():
                text = str(error.args[0])
            case _:
                text = type(error).__name__
        return without_host(self._server, text)[:_REASON_LETTERS]
