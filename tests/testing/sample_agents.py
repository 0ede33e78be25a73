"""Agents of the tests of the harness, which a child process imports."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from backstay import Text, Thought
from backstay.agents import AgentTurn, BlockingAgentTurn, MayHaveRun, OpenAICompatible, ToolFailed, tool
from backstay.model.content import Body

PAYMENTS = "PAYMENTS_OF_THE_TEST"
MODEL_URL = "MODEL_URL_OF_THE_TEST"


@tool
def pay(amount: int, key: str) -> str:
    """Pay an amount."""
    if PAYMENTS in os.environ:
        with Path(os.environ[PAYMENTS]).open("a") as file:
            file.write(f"{key}\n")
    return f"paid {amount}"


@tool(approval=True)
def wipe(disk: str) -> str:
    """Wipe a disk."""
    return f"wiped {disk}"


async def cashier(turn: AgentTurn) -> AsyncIterator[Body]:
    """Pays, and says so; asks if it cannot know whether it paid."""
    yield Thought("They want to pay.")
    try:
        yield Text(str(await turn.call(pay, {"amount": 5})))
    except MayHaveRun:
        yield Text("I may have paid already.")


async def cleaner(turn: AgentTurn) -> AsyncIterator[Body]:
    """Wipes the disk that it is told to, if a person agrees."""
    try:
        yield Text(str(await turn.call(wipe, {"disk": turn.input.text})))
    except ToolFailed as failure:
        yield Text(str(failure.args[0]))


def counter(turn: BlockingAgentTurn) -> Iterator[Body]:
    """Counts the messages before its input, in a thread."""
    yield Text(str(len(turn.messages) - 1))


class Companion:
    """A live agent that counts its turns."""

    def __init__(self) -> None:
        self._turns = 0

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        """Say the number of this turn."""
        self._turns += 1
        yield Text(f"turn {self._turns}")

    async def aclose(self) -> None:
        """Do nothing."""


talker = OpenAICompatible(os.environ.get(MODEL_URL, "http://127.0.0.1:9/v1"), "tiny", tools=[pay])
