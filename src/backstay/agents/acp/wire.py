"""The wire: JSON-RPC messages as lines of a child's pipes, with a bound on everything that a stranger may send."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from backstay.agents.acp.child import LINE_BYTES, Child, shown

log = logging.getLogger("backstay.agents.acp")

Message = dict[str, Any]  # Any: whatever JSON the protocol carries

# How much may be written that is no message: programs greet, warn and advertise on standard output.
_NONSENSE_BYTES = 1 << 20
_QUOTED = 120


class Wire:
    """What the protocol's connection reads and writes. `fault` says why it ended, if that was not the child's end."""

    def __init__(self, child: Child, room: Callable[[], Awaitable[object]]) -> None:
        self._child, self._room = child, room
        self._nonsense_bytes = 0
        self._writing = asyncio.Lock()
        self.nonsense = ""
        self.fault = ""

    async def send(self, message: Message) -> None:
        """Write a message. An answer that nobody is left to hear is no trouble; a question is."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        try:
            async with self._writing:
                self._child.stdin.write(line)
                await self._child.stdin.drain()
        except (ConnectionError, RuntimeError) as error:
            if "method" in message:
                raise ConnectionError("the agent does not listen any more") from error

    async def receive(self) -> Message | None:
        """The next message, as soon as there is room for it; None at the end."""
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
                self.fault = "wrote too much that is no message of the protocol"
                return None

    async def close(self) -> None:
        """Whoever started the child ends it."""

    def _skip(self, line: bytes) -> None:
        text = shown(line[:4_096].decode(errors="replace"))[:_QUOTED]
        if text:
            self._nonsense_bytes += len(line)
            self.nonsense = text
            log.debug("agent wrote what is no message", extra={"agent": self._child.name, "bytes": len(line)})


def _read(line: bytes) -> Message | None:
    """The message that a line holds, if it is one that can be acted on."""
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
