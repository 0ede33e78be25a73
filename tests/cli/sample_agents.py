"""Agents for the command line's tests, as a person would write them in a file."""

import asyncio
from collections.abc import AsyncIterator

from backstay import Attachment, Text, ToolCall, ToolResult
from backstay.agents.port import AgentTurn
from backstay.model.content import Body

ESCAPES = "red \x1b[31m bell \x07 csi \x9b2J title \x1b]0;pwned\x07 bidi \u202e end"


async def echo(turn: AgentTurn) -> AsyncIterator[Body]:
    """Repeats its input."""
    yield Text(f"heard {turn.input.text}")


async def opener(turn: AgentTurn) -> AsyncIterator[Body]:
    """Answers with its input, and with the contents of its files."""
    yield Text(turn.input.text)
    for part in turn.input.parts:
        if isinstance(part, Attachment):
            yield Text(f"[{part.name} {part.media_type}: {(await turn.read(part)).decode()}]")


async def failing(turn: AgentTurn) -> AsyncIterator[Body]:
    """Sends some output, then raises."""
    yield Text("well")
    raise RuntimeError("no more words")


async def hostile(turn: AgentTurn) -> AsyncIterator[Body]:
    """Sends terminal control characters, and so does its tool."""
    yield ToolCall("call-1", "look\x1b[2J", {"what": ESCAPES})
    yield ToolResult("call-1", ESCAPES)
    yield Text(ESCAPES)


async def endless(turn: AgentTurn) -> AsyncIterator[Body]:
    """Sends some output, then waits forever."""
    yield Text("I am here\n")
    await asyncio.Event().wait()
