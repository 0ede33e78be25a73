"""Agents with checkable output: missing or repeated words are seen at once."""

import asyncio
import itertools
from collections.abc import AsyncIterator

from backstay import Text
from backstay.agents.port import AgentTurn
from backstay.model.content import Body


async def counting(turn: AgentTurn) -> AsyncIterator[Body]:
    """Counts from one, a number at a time, until it is steered."""
    for number in itertools.count(1):
        yield Text(f"{number} ")
        if await turn.steering():
            return
        await asyncio.sleep(0.005)


async def bursting(turn: AgentTurn) -> AsyncIterator[Body]:
    """Sends ten thousand numbers at once, a paragraph for every hundred, and ends."""
    numbers = [str(number) for number in range(1, 10_001)]
    yield Text("\n\n".join(" ".join(numbers[start : start + 100]) for start in range(0, 10_000, 100)))


async def spelling(turn: AgentTurn) -> AsyncIterator[Body]:
    """Repeats its input, three letters at a time, so that the page draws every intermediate state of Markdown."""
    text = turn.input.text
    for start in range(0, len(text), 3):
        yield Text(text[start : start + 3])
        await asyncio.sleep(0.001)


async def dividing(turn: AgentTurn) -> AsyncIterator[Body]:
    """Raises an exception of Python's own."""
    yield Text("so far ")
    yield Text(str(1 / (len(turn.messages) - len(turn.messages))))
