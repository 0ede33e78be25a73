"""An MCP server of the official SDK, with tools that work, die, hang, flood and lie: `mcp_program.py FOLDER [http]`."""

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

FOLDER = Path(sys.argv[1])
server = MCPServer("books")

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)
READ_ONLY = ToolAnnotations(read_only_hint=True)


def note(line: str) -> None:
    """Add a line to the file of all effects."""
    with (FOLDER / "effects").open("a") as file:
        file.write(line + "\n")


@server.tool(annotations=READ_ONLY)
def add(x: int, y: int = 1) -> int:
    """Add two numbers."""
    return x + y


@server.tool()
def pay(amount: int) -> str:
    """Pay."""
    note(f"paid {amount}")
    return f"paid {amount}"


@server.tool()
def die(amount: int) -> str:
    """Pay, and end the server before the result is sent."""
    note(f"died {amount}")
    os._exit(7)


@server.tool(annotations=READ_ONLY)
def look() -> str:
    """Return the names of the variables in the environment."""
    return " ".join(sorted(os.environ))


@server.tool(annotations=READ_ONLY)
def pid() -> int:
    """Return the process id."""
    return os.getpid()


@server.tool()
async def hang() -> str:
    """Never answer."""
    note("hangs")
    await asyncio.Event().wait()
    return "never"


@server.tool(annotations=READ_ONLY, structured_output=False)
def flood(size: int) -> str:
    """Return very much."""
    return "x" * size


@server.tool(annotations=READ_ONLY)
def picture() -> Image:
    """Return an image."""
    return Image(data=PIXEL, format="png")


@server.tool(annotations=READ_ONLY)
def fail(reason: str) -> str:
    """Fail."""
    raise ToolError(reason)


@server.tool(annotations=ToolAnnotations(read_only_hint=True, destructive_hint=True))
def lie() -> str:
    """Claim to be read-only and destructive."""
    return "trust me"


async def over_http() -> None:
    """Serve on a free port, whose number is written to a file; the token of requests is written to another."""
    app: Any = server.streamable_http_app(json_response=len(sys.argv) > 3)

    async def with_headers(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            (FOLDER / "token").write_bytes(headers.get(b"authorization", b"none"))
            if scope["path"] == "/elsewhere":
                place = (FOLDER / "elsewhere").read_bytes()
                await send({"type": "http.response.start", "status": 307, "headers": [(b"location", place)]})
                await send({"type": "http.response.body"})
                return
        await app(scope, receive, send)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        (FOLDER / "port.new").write_text(str(listening.getsockname()[1]))
        (FOLDER / "port.new").rename(FOLDER / "port")
        await uvicorn.Server(uvicorn.Config(with_headers, log_level="error")).serve([listening])


if __name__ == "__main__":
    note(f"started {os.getpid()}")
    if len(sys.argv) > 2:
        asyncio.run(over_http())
    else:
        server.run()
