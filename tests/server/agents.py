"""The agents of these tests. They are controlled by their input, so that another process can serve them too."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Mapping

from backstay import Attachment, Custom, Text, Usage
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
    """Repeats its input, a word at a time; answers `many N` with N words."""
    words = turn.input.text.split()
    if words[:1] == ["many"]:
        words = [f"word{number}" for number in range(int(words[1]))]
    for word in words:
        yield Text(f"{word} ")
        await asyncio.sleep(0)


async def patient(turn: AgentTurn) -> AsyncIterator[Body]:
    """Sends some output, and more when it is steered; ends only after the input `enough`."""
    yield Text("listening ")
    while True:
        for steering in await turn.steering():
            text = " ".join(part.text for part in steering.parts if isinstance(part, Text))
            yield Text(f"heard {text} ")
            if text == "enough":
                return
        await asyncio.sleep(0.01)


async def careful(turn: AgentTurn) -> AsyncIterator[Body]:
    """Needs approval before it acts."""
    yield Text(str(await turn.call(launch, {"where": "the moon"})))


async def thoughtful(turn: AgentTurn) -> AsyncIterator[Body]:
    """Reports usage with a cost."""
    yield Text("hm")
    yield Usage(input_tokens=10, output_tokens=7, cached_tokens=4, reasoning_tokens=5)


async def cut(turn: AgentTurn) -> AsyncIterator[Body]:
    """Reports that its model cut the answer off."""
    yield Text("as far as ")
    yield Custom("answer_cut", {"reason": "length"})


async def looker(turn: AgentTurn) -> AsyncIterator[Body]:
    """Answers with the files of the whole conversation and their contents."""
    for message in turn.messages:
        for part in message.parts:
            if isinstance(part, Attachment):
                content = await turn.read(part)
                yield Text(f"{part.name} {part.media_type} {zlib.crc32(content)} {part.size == len(content)};")
    yield Text(f" {turn.input.text}")


scripted = ScriptedAgent()

AGENTS: Mapping[str, AgentLike] = {
    "default": echo,
    "patient": patient,
    "careful": careful,
    "scripted": scripted,
    "cut": cut,
    "looker": looker,
    "thoughtful": thoughtful,
}
