"""The desk: what every handle of an open app works with."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from backstay.model.turn import OpenTurn
from backstay.runtime.crossing import Crossing
from backstay.runtime.pulse import Pulse
from backstay.runtime.runner import Runner
from backstay.runtime.timing import Timing


class Desk:
    """The crossing to the store, the pulse, and the runner with its tasks."""

    def __init__(self, crossing: Crossing, pulse: Pulse, runner: Runner, timing: Timing) -> None:
        self.crossing, self.pulse, self.runner, self.timing = crossing, pulse, runner, timing
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, opened: OpenTurn) -> None:
        """Run a turn that was opened for this process, in a task of its own with a context of its own."""
        self.keep(self.runner.run(opened), name=f"turn {opened.id}")

    def keep(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run something until it ends or the app closes; nobody else remembers the task."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Wait until every turn has ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)
