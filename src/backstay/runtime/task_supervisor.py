"""The tasks of an open app: running turns and background work, and the collaborators that its handles share."""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from backstay.errors import StoreUnavailable
from backstay.model.ids import SessionId, TurnId
from backstay.model.message import MessagePage
from backstay.model.turn import Accepted, Compacting, OpenTurn
from backstay.runtime.async_store import AsyncStore
from backstay.runtime.compaction.policy import CompactionRequest
from backstay.runtime.events.notifier import Notifier
from backstay.runtime.owner_limits import RunningTurns
from backstay.runtime.timing import Timing
from backstay.runtime.turns.runner import Runner
from backstay.store import commands
from backstay.store.commands import Write

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("backstay.runtime")

# A task that reacts to its cancellation has ended by then.
_STOPPING_SECONDS = 2.0


class Submission(Protocol):
    """Makes the command that accepts an input."""

    def __call__(self, *, start: Collection[str]) -> Write[Accepted]:
        """Make the command; it starts the turn if its agent is among these names."""
        ...


def _in_own_task(
    method: "Callable[Concatenate[TaskSupervisor, P], Coroutine[object, object, T]]",
) -> "Callable[Concatenate[TaskSupervisor, P], Awaitable[T]]":
    """Run the method in a task of the supervisor. A cancelled caller does not cancel it: its turn gets its start."""

    @wraps(method)
    def run(supervisor: "TaskSupervisor", /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        supervisor.store.require_own_loop()
        work = method(supervisor, *args, **kwargs)
        return asyncio.shield(_keep(supervisor.turn_tasks, work, method.__name__))

    return run


class TaskSupervisor:
    """Owns the tasks of an app, and gives its handles the async store, the notifier and the runner."""

    def __init__(
        self, store: AsyncStore, notifier: Notifier, runner: Runner, timing: Timing, running: RunningTurns
    ) -> None:
        self.store, self.notifier, self.runner, self.timing = store, notifier, runner, timing
        self.running = running
        self.turn_tasks: set[asyncio.Task[object]] = set()
        self._background_tasks: set[asyncio.Task[object]] = set()
        self._abandoned_tasks = 0
        self._drained = False
        # Turns sent from here that may still wait, with their owners; None if this app claims every waiting turn.
        self.own: dict[TurnId, str] | None = None

    @property
    def abandoned(self) -> int:
        """How many agents, tools and background tasks ignored their cancellation and were abandoned."""
        return self.runner.abandoned + self._abandoned_tasks

    def start(self, opened: OpenTurn) -> None:
        """Run a turn that was opened for this process, in a task of its own."""
        self.running.add(opened.owner)
        self.runner.expect(opened.id)
        task = _keep(self.turn_tasks, self.runner.run(opened), f"turn {opened.id}")
        task.add_done_callback(lambda _: self._ended(opened))

    def _ended(self, opened: OpenTurn) -> None:
        self.running.remove(opened.owner)
        # A task that is cancelled before its first step has not settled it.
        self.runner.settle(opened.id, None)

    @_in_own_task
    async def resume(self, turn: TurnId, owner: str) -> OpenTurn:
        """Resume an interrupted turn. A cancelled caller does not prevent the start of a turn that was opened."""
        self.running.require_room(owner)
        opened = await self.store.run(commands.resume(turn, owner=owner, agents=self.runner.served))
        # No `await` between the commit and the start: an opened turn always gets its task.
        self.start(opened)
        self.notifier.publish(opened.session, opened.fence, opened.event)
        return opened

    def start_background(self, work: Coroutine[object, object, None], name: str) -> None:
        """Run work in the background, until it ends or the app closes.

        Raises:
            StoreUnavailable: The app is closed.
        """
        if self._drained:
            work.close()
        self._refuse_drained()
        _keep(self._background_tasks, work, name)

    def accept(self, owner: str, submission: Submission) -> "asyncio.Future[Accepted]":
        """Submit an input, and start the turn if it was opened. A cancelled caller does not prevent the start.

        The turn waits if its owner already runs its maximum number of turns.
        """
        self.store.require_own_loop()
        answer: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
        # As in `_keep`, but without a further call: this is on the path of every message.
        work = self._accept(owner, submission, answer)
        task = asyncio.create_task(work, name="accept", context=contextvars.Context())
        self.turn_tasks.add(task)
        task.add_done_callback(self.turn_tasks.discard)
        return answer

    async def _accept(self, owner: str, submission: Submission, answer: "asyncio.Future[Accepted]") -> None:
        try:
            # Reserve before the write: of two concurrent submissions at the limit only one may open a turn here.
            with self.running.reserved(owner) as room:
                accepted = await self.store.run(submission(start=self.runner.served if room else ()))
                # The sender first: its response does not wait for the first steps of the turn, nor for the readers.
                if not answer.done():
                    answer.set_result(accepted)
                # No `await` between the commit and the start: an opened turn always gets its task.
                if self.own is not None:
                    self.own[accepted.turn.id] = accepted.session.owner
                self.notifier.publish_result(accepted)
                if accepted.opened is not None:
                    self.start(accepted.opened)
        except Exception as error:
            if answer.cancelled():
                return  # As with `asyncio.shield`: a sender that was cancelled does not learn the error.
            if answer.done():
                raise
            answer.set_exception(error)
        except BaseException:
            answer.cancel()
            raise

    @_in_own_task
    async def compact(
        self, session: SessionId, owner: str, request: CompactionRequest, seen: MessagePage
    ) -> Compacting:
        """Open a compaction of these messages and run it here, or return the one that already runs."""
        self._refuse_drained()
        self.running.require_room(owner)
        compacting = await self.store.run(commands.compact(session, owner=owner, seen=seen))
        if compacting.opened is not None:
            self.runner.compactor.set_request(compacting.opened.id, request)
            self.start(compacting.opened)
        return compacting

    async def drain(self) -> None:
        """Wait until every turn has ended. Background tasks get the grace time."""
        while self.turn_tasks:
            await asyncio.wait(self.turn_tasks)
        # From here on a new task would have no owner. Turns cannot start any more: no agent is served while closing.
        self._drained = True
        if self._background_tasks:
            _, late = await asyncio.wait(self._background_tasks, timeout=self.timing.grace)
            await self._stop(late)

    def _refuse_drained(self) -> None:
        if self._drained:
            raise StoreUnavailable("the app is closed", hint="Open it again.")

    async def _stop(self, late: "set[asyncio.Task[object]]") -> None:
        """Cancel these tasks. One that ignores it is abandoned: it can write nothing after the app has closed."""
        for task in late:
            task.cancel()
        if late:
            _, running = await asyncio.wait(late, timeout=_STOPPING_SECONDS)
            self._abandoned_tasks += len(running)
            for task in running:
                log.warning("background task ignored its cancellation", extra={"task": task.get_name()})


def _keep(tasks: "set[asyncio.Task[object]]", work: Coroutine[object, object, T], name: str) -> "asyncio.Task[T]":
    """Create a task that the supervisor owns, with an empty context: a turn is not part of the turn that sent it."""
    task = asyncio.create_task(work, name=name, context=contextvars.Context())
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task
