"""The desk: what every handle of an open app works with."""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

from backstay.model.ids import SessionId, TurnId
from backstay.model.message import MessagePage
from backstay.model.turn import Accepted, Compacting, OpenTurn
from backstay.runtime.compaction import Wish
from backstay.runtime.crossing import Crossing
from backstay.runtime.pulse import Pulse
from backstay.runtime.runner import Runner
from backstay.runtime.timing import Timing
from backstay.store.port import Store

T = TypeVar("T")

log = logging.getLogger("backstay.runtime")

# Whatever listens has stopped by then.
_STOPPING_SECONDS = 2.0


class Desk:
    """The crossing to the store, the pulse, and the runner with its tasks."""

    def __init__(self, crossing: Crossing, pulse: Pulse, runner: Runner, timing: Timing) -> None:
        self.crossing, self.pulse, self.runner, self.timing = crossing, pulse, runner, timing
        self._turns: set[asyncio.Task[object]] = set()
        self._errands: set[asyncio.Task[object]] = set()
        self._deaf = 0
        # The turns sent from here that may still wait, and their owners; None where whatever waits is claimed.
        self.own: dict[TurnId, str] | None = None

    @property
    def abandoned(self) -> int:
        """How many agents, tools and errands did not stop when they were told to, and were left behind."""
        return self.runner.abandoned + self._deaf

    def start(self, opened: OpenTurn) -> None:
        """Run a turn that was opened for this process, in a task of its own."""
        _keep(self._turns, self.runner.run(opened), f"turn {opened.id}")

    async def resume(self, turn: TurnId, owner: str) -> OpenTurn:
        """Go on with an interrupted turn; not even a cancelled caller comes between its opening and its start."""
        self.crossing.refuse_strangers()
        return await asyncio.shield(_keep(self._turns, self._resume(turn, owner), "resume"))

    async def _resume(self, turn: TurnId, owner: str) -> OpenTurn:
        opened = await self.crossing.write(Store.resume, turn, owner=owner)
        self.start(opened)
        self.pulse.tell(opened.session, opened.event)
        return opened

    def send_off(self, work: Coroutine[object, object, None], name: str) -> None:
        """Do something on the side, until it ends or the app closes."""
        _keep(self._errands, work, name)

    async def accept(self, submitting: Callable[[], Awaitable[Accepted]]) -> Accepted:
        """Have something accepted and start what was opened by it; not even a cancelled caller comes between."""
        self.crossing.refuse_strangers()
        task = _keep(self._turns, self._accept(submitting), "accept")
        return await asyncio.shield(task)

    async def compact(self, session: SessionId, owner: str, wish: Wish, seen: MessagePage) -> Compacting:
        """Open a compaction of what was seen and run it here, or learn which one runs already."""
        self.crossing.refuse_strangers()
        task = _keep(self._turns, self._compact(session, owner, wish, seen), "compact")
        return await asyncio.shield(task)

    async def drain(self) -> None:
        """Wait until every turn has ended; errands get the grace time."""
        while self._turns:
            await asyncio.wait(self._turns)
        if self._errands:
            _, late = await asyncio.wait(self._errands, timeout=self.timing.grace)
            await self._stop(late)

    async def _stop(self, late: "set[asyncio.Task[object]]") -> None:
        """Stop these errands. One that will not stop is left behind: it can write nothing once the app is closed."""
        for task in late:
            task.cancel()
        if late:
            _, deaf = await asyncio.wait(late, timeout=_STOPPING_SECONDS)
            self._deaf += len(deaf)
            for task in deaf:
                log.warning("errand does not stop and is left behind", extra={"task": task.get_name()})

    async def _accept(self, submitting: Callable[[], Awaitable[Accepted]]) -> Accepted:
        accepted = await submitting()
        if self.own is not None:
            self.own[accepted.turn.id] = accepted.session.owner
        self.pulse.tell(accepted.session.id, accepted.session.last_event)
        if accepted.opened is not None:
            self.start(accepted.opened)
        return accepted

    async def _compact(self, session: SessionId, owner: str, wish: Wish, seen: MessagePage) -> Compacting:
        compacting = await self.crossing.write(Store.compact, session, owner=owner, seen=seen)
        if compacting.opened is not None:
            self.runner.compactor.wish(compacting.opened.id, wish)
            self.start(compacting.opened)
        return compacting


def _keep(tasks: "set[asyncio.Task[object]]", work: Coroutine[object, object, T], name: str) -> "asyncio.Task[T]":
    """A task that somebody remembers, in a context of its own: a turn is not part of the turn that sent it."""
    task = asyncio.create_task(work, name=name, context=contextvars.Context())
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task
