"""The desk: what every handle of an open app works with."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from backstay.model.turn import Accepted, OpenTurn
from backstay.runtime.crossing import Crossing
from backstay.runtime.pulse import Pulse
from backstay.runtime.runner import Runner
from backstay.runtime.timing import Timing

T = TypeVar("T")


class Desk:
    """The crossing to the store, the pulse, and the runner with its tasks."""

    def __init__(self, crossing: Crossing, pulse: Pulse, runner: Runner, timing: Timing) -> None:
        self.crossing, self.pulse, self.runner, self.timing = crossing, pulse, runner, timing
        self._turns: set[asyncio.Task[Any]] = set()
        self._errands: set[asyncio.Task[Any]] = set()

    def start(self, opened: OpenTurn) -> None:
        """Run a turn that was opened for this process, in a task of its own."""
        _keep(self._turns, self.runner.run(opened), f"turn {opened.id}")

    def send_off(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Do something on the side, until it ends or the app closes."""
        _keep(self._errands, work, name)

    async def accept(self, submitting: Callable[[], Awaitable[Accepted]]) -> Accepted:
        """Have something accepted and start what was opened by it; not even a cancelled caller comes between."""
        task = _keep(self._turns, self._accept(submitting), "accept")
        return await asyncio.shield(task)

    async def drain(self) -> None:
        """Wait until every turn has ended; errands get the grace time."""
        while self._turns:
            await asyncio.wait(self._turns)
        if self._errands:
            _, late = await asyncio.wait(self._errands, timeout=self.timing.grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _accept(self, submitting: Callable[[], Awaitable[Accepted]]) -> Accepted:
        accepted = await submitting()
        self.pulse.tell(accepted.session.id, accepted.session.last_event)
        if accepted.opened is not None:
            self.start(accepted.opened)
        return accepted


def _keep(tasks: "set[asyncio.Task[Any]]", work: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
    """A task that somebody remembers, in a context of its own: a turn is not part of the turn that sent it."""
    task = asyncio.create_task(work, name=name, context=contextvars.Context())
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task
