"""A driven app: one on a loop of its own that runs only while blocking code has it do something."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import backstay
from backstay import App, Text, Timing
from backstay.agents.port import AgentTurn
from backstay.model.content import Body
from backstay.model.turn import Completed
from backstay.runtime.session_handle import Session
from benchmarks.speech import QUESTION

T = TypeVar("T")
AgentFunction = Callable[[AgentTurn], AsyncIterator[Body]]

# Every body is a checkpoint of its own: an agent may not go on before what it said is on its way to the disk.
STEPWISE = Timing(flush_bytes=1, buffer_bytes=1)


class Driven:
    """An open app, and the loop it lives on."""

    def __init__(self, runner: asyncio.Runner, app: App) -> None:
        self._runner, self.app = runner, app

    def do(self, work: Coroutine[object, object, T]) -> T:
        """Let the loop run until the work is done."""
        return self._runner.run(work)


@contextmanager
def driven(path: Path, agent: AgentFunction, timing: Timing = STEPWISE) -> Iterator[Driven]:
    """Open an app with this agent; closed afterwards."""
    with asyncio.Runner() as runner:
        app = backstay.open(path, agent=agent, timing=timing)
        runner.run(app.__aenter__())
        try:
            yield Driven(runner, app)
        finally:
            runner.run(app.close())


def saying(words: Sequence[str]) -> AgentFunction:
    """An agent that says these words to everybody, without a pause."""

    async def agent(_: AgentTurn) -> AsyncIterator[Body]:
        for word in words:
            yield Text(word)

    return agent


async def converse(app: App, turns: int) -> None:
    """So many turns in a new session: each sent, and its outcome waited for, before the next."""
    session = await app.session()
    for _ in range(turns):
        await ask(session)


async def ask(session: Session) -> None:
    """One turn from its sending to its outcome."""
    turn = await session.send(QUESTION)
    outcome = await turn.outcome()
    if not isinstance(outcome, Completed):
        raise RuntimeError(f"{turn.id} ended as {outcome}")  # noqa: TRY004  # it is no matter of types
