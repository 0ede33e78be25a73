"""Agents whose every word can be checked: what is missing or told twice is seen at once."""

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
    """Says ten thousand numbers in one breath, a paragraph for every hundred, and ends."""
    numbers = [str(number) for number in range(1, 10_001)]
    yield Text("\n\n".join(" ".join(numbers[start : start + 100]) for start in range(0, 10_000, 100)))


async def spelling(turn: AgentTurn) -> AsyncIterator[Body]:
    """Says what it hears, three letters at a time, so that a page draws every state that Markdown can be in."""
    text = turn.input.text
    for start in range(0, len(text), 3):
        yield Text(text[start : start + 3])
        await asyncio.sleep(0.001)
