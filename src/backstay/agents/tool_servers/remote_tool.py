"""The tools that an MCP server offers, as tools of an agent. The server is not trusted: limits apply."""

import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

import msgspec
from mcp import ClientSession
from mcp.types import PaginatedRequestParams, ToolAnnotations
from mcp.types import Tool as OfferedTool

from backstay.agents.tool_servers.tool_server import ToolServer
from backstay.agents.tools import Tool
from backstay.errors import Rejected
from backstay.model.codec import check_body
from backstay.model.content import Json, ToolCall
from backstay.model.limits import Limits

log = logging.getLogger("backstay.agents.tool_servers")

MOST_TOOLS = 128
_MOST_PAGES = 32
_DEFINITION_BYTES = 64 << 10
_DESCRIPTION_LETTERS = 4_096
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_NAME_LETTERS = 64

CallTool = Callable[[str, dict[str, Json], bool], Awaitable[object]]


class RemoteTool(NamedTuple):
    """A tool of a server, and the schema of its arguments."""

    tool: Tool
    schema: dict[str, Json]


async def offered_tools(session: ClientSession) -> list[OfferedTool]:
    """Read the list of tools. A server that lists too many is read only so far."""
    found: list[OfferedTool] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None or len(found) > MOST_TOOLS:
            break
    return found


def remote_tools(server: ToolServer, offered: Iterable[OfferedTool], call: CallTool) -> tuple[RemoteTool, ...]:
    """Return the tools that an agent may offer, by name. The others are logged and left out."""
    tools: dict[str, RemoteTool] = {}
    refused: dict[str, str] = {}
    # Not in the order of the server: it may change, and with it the beginning of each request to the model.
    for one in sorted(offered, key=lambda tool: tool.name):
        name = _NOT_IN_NAMES.sub("_", server.prefix + one.name)[:_NAME_LETTERS]
        why = _refusal(server, one, name, tools)
        if why:
            refused[name[:_NAME_LETTERS]] = why
        else:
            tools[name] = RemoteTool(_tool(server, one, name, call), _schema(one))
    if refused:
        shown = dict(list(refused.items())[:MOST_TOOLS])
        log.warning("tools of an MCP server are left out", extra={"server": server.name, "tools": shown})
    return tuple(tools.values())


def _refusal(server: ToolServer, offered: OfferedTool, name: str, tools: dict[str, RemoteTool]) -> str:
    """Return why a tool is left out; empty if it is not."""
    if len(tools) >= MOST_TOOLS:
        return f"more than {MOST_TOOLS} tools"
    if not name or name in tools:
        return "no name of its own"
    if server.approval == "deny" and not _is_read_only(offered.annotations):
        return "not declared read-only"
    schema = _schema(offered)
    try:
        if len(msgspec.json.encode(schema)) > _DEFINITION_BYTES:
            return f"its schema has more than {_DEFINITION_BYTES:,} bytes"
        check_body(ToolCall("schema", name, schema), Limits())
    except (Rejected, TypeError, ValueError, RecursionError):
        return "its schema is not JSON"
    return "" if schema.get("type") == "object" else "its schema is not that of an object"


def _schema(offered: OfferedTool) -> dict[str, Json]:
    schema: dict[str, Json] = offered.input_schema
    return schema


def _tool(server: ToolServer, offered: OfferedTool, name: str, call: CallTool) -> Tool:
    idempotent, own_name = is_idempotent(offered.annotations), offered.name

    async def function(**arguments: Json) -> object:
        return await call(own_name, arguments, idempotent)

    return Tool(
        name=name,
        function=function,
        description=(offered.description or offered.title or "")[:_DESCRIPTION_LETTERS],
        idempotent=idempotent,
        approval=server.approval == "ask" and not _is_read_only(offered.annotations),
    )


def is_idempotent(hints: ToolAnnotations | None) -> bool:
    """Return whether a tool may run twice: it is declared read-only or idempotent, and not destructive."""
    if hints is None or hints.destructive_hint is True:
        return False
    return hints.read_only_hint is True or hints.idempotent_hint is True


def _is_read_only(hints: ToolAnnotations | None) -> bool:
    return hints is not None and hints.read_only_hint is True and hints.destructive_hint is not True
