"""JSON-RPC messages as lines in the pipes of a child process, with a limit on everything that it may send."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from backstay.agents.programs.child_process import LINE_BYTES, Child, shown

log = logging.getLogger("backstay.agents.acp")

Message = dict[str, Any]  # Any: the JSON that the protocol carries

# How many bytes may be written that are not messages: programs print greetings and warnings on standard output.
_NONSENSE_BYTES = 1 << 20
_QUOTED = 120


class JsonRpcPipe:
    """The transport of the protocol's connection. `fault` is the reason for its end, unless the child ended."""

    def __init__(self, child: Child, room: Callable[[], Awaitable[object]]) -> None:
        self._child, self._room = child, room
        self._nonsense_bytes = 0
        self._writing = asyncio.Lock()
        self.nonsense = ""
        self.fault = ""

    async def send(self, message: Message) -> None:
        """Write a message. If the child has closed its input, a request raises; a response is dropped."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        try:
            async with self._writing:
                self._child.stdin.write(line)
                await self._child.stdin.drain()
        except (ConnectionError, RuntimeError) as error:
            if "method" in message:
                raise ConnectionError("the agent has closed its input") from error

    async def receive(self) -> Message | None:
        """Return the next message when there is room for it; None at the end."""
        while True:
            await self._room()
            try:
                line = await self._child.stdout.readuntil(b"\n")
            except asyncio.IncompleteReadError as error:
                self._skip(error.partial)
                return None
            except asyncio.LimitOverrunError:
                self.fault = f"wrote a line of more than {LINE_BYTES:,} bytes"
                return None
            message = _read(line)
            if message is not None:
                return message
            self._skip(line)
            if self._nonsense_bytes > _NONSENSE_BYTES:
                self.fault = "wrote too much output that is not part of the protocol"
                return None

    async def close(self) -> None:
        """Do nothing: the owner of the child ends it."""

    def _skip(self, line: bytes) -> None:
        text = shown(line[:4_096].decode(errors="replace"))[:_QUOTED]
        if text:
            self._nonsense_bytes += len(line)
            self.nonsense = text
            log.debug("agent wrote a line that is not a message", extra={"agent": self._child.name, "bytes": len(line)})


def _read(line: bytes) -> Message | None:
    """Return the message in a line, or None if it is not a valid request, notification or response."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    if "method" in message:
        return message if isinstance(message["method"], str) else None
    answers = type(message.get("id")) is int and ("result" in message or isinstance(message.get("error"), dict))
    return message if answers else None
