"""An app on its own event loop, which runs only while blocking code waits for it."""

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
from benchmarks.instruments.sample_turns import QUESTION

T = TypeVar("T")
AgentFunction = Callable[[AgentTurn], AsyncIterator[Body]]

# Each body is its own checkpoint: the agent continues only when its output is being written.
STEPWISE = Timing(flush_bytes=1, buffer_bytes=1)


class SteppedApp:
    """An open app and its loop."""

    def __init__(self, runner: asyncio.Runner, app: App) -> None:
        self._runner, self.app = runner, app

    def do(self, work: Coroutine[object, object, T]) -> T:
        """Run the loop until the work is done."""
        return self._runner.run(work)


@contextmanager
def stepped_app(path: Path, agent: AgentFunction, timing: Timing = STEPWISE) -> Iterator[SteppedApp]:
    """Open an app with this agent; closed afterwards."""
    with asyncio.Runner() as runner:
        app = backstay.open(path, agent=agent, timing=timing)
        runner.run(app.__aenter__())
        try:
            yield SteppedApp(runner, app)
        finally:
            runner.run(app.close())


def answering_with(words: Sequence[str]) -> AgentFunction:
    """An agent that answers with this text, without a pause."""

    async def agent(_: AgentTurn) -> AsyncIterator[Body]:
        for word in words:
            yield Text(word)

    return agent


async def converse(app: App, turns: int) -> None:
    """Run turns in a new session: each is sent after the outcome of the one before."""
    session = await app.session()
    for _ in range(turns):
        await ask(session)


async def ask(session: Session) -> None:
    """Send one turn and wait for its outcome."""
    turn = await session.send(QUESTION)
    outcome = await turn.outcome()
    if not isinstance(outcome, Completed):
        raise RuntimeError(f"{turn.id} ended as {outcome}")  # noqa: TRY004  # not a type error
