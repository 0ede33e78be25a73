"""The agents of these tests. They are told by what they hear, so that another process can serve them as well."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from backstay import Custom, Text
from backstay.agents import tool
from backstay.agents.adapters import AgentLike
from backstay.agents.port import AgentTurn
from backstay.agents.scripted.scripted_agent import ScriptedAgent
from backstay.model.content import Body


@tool(approval=True)
def launch(where: str) -> str:
    """Launch something, if a person allows it."""
    return f"launched to {where}"


async def echo(turn: AgentTurn) -> AsyncIterator[Body]:
    """Repeats what it hears, a word at a time; `many N` is answered with N words."""
    words = turn.input.text.split()
    if words[:1] == ["many"]:
        words = [f"word{number}" for number in range(int(words[1]))]
    for word in words:
        yield Text(f"{word} ")
        await asyncio.sleep(0)


async def patient(turn: AgentTurn) -> AsyncIterator[Body]:
    """Begins to speak, and goes on when it is steered; never ends unless it hears `enough`."""
    yield Text("listening ")
    while True:
        for steering in await turn.steering():
            text = " ".join(part.text for part in steering.parts if isinstance(part, Text))
            yield Text(f"heard {text} ")
            if text == "enough":
                return
        await asyncio.sleep(0.01)


async def careful(turn: AgentTurn) -> AsyncIterator[Body]:
    """Asks before it does anything."""
    yield Text(str(await turn.call(launch, {"where": "the moon"})))


async def cut(turn: AgentTurn) -> AsyncIterator[Body]:
    """Is cut off by its model."""
    yield Text("as far as ")
    yield Custom("answer_cut", {"reason": "length"})


scripted = ScriptedAgent()

AGENTS: Mapping[str, AgentLike] = {
    "default": echo,
    "patient": patient,
    "careful": careful,
    "scripted": scripted,
    "cut": cut,
}
