"""Agents for the command line's tests, as a person would write them in a file."""

import asyncio
from collections.abc import AsyncIterator

from backstay import Text, ToolCall, ToolResult
from backstay.agents.port import AgentTurn
from backstay.model.content import Body

ESCAPES = "red \x1b[31m bell \x07 csi \x9b2J title \x1b]0;pwned\x07 bidi \u202e end"


async def echo(turn: AgentTurn) -> AsyncIterator[Body]:
    """Repeats what it hears."""
    yield Text(f"heard {turn.input.text}")


async def failing(turn: AgentTurn) -> AsyncIterator[Body]:
    """Says something, and then cannot."""
    yield Text("well")
    raise RuntimeError("no more words")


async def hostile(turn: AgentTurn) -> AsyncIterator[Body]:
    """Tries to steer the terminal, and so does its tool."""
    yield ToolCall("call-1", "look\x1b[2J", {"what": ESCAPES})
    yield ToolResult("call-1", ESCAPES)
    yield Text(ESCAPES)


async def endless(turn: AgentTurn) -> AsyncIterator[Body]:
    """Says that it is here, and waits for ever."""
    yield Text("I am here\n")
    await asyncio.Event().wait()
