"""The runner runs an opened turn from its start to its outcome."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from backstay.agents.adapters import AgentFactory
from backstay.agents.agent_traceback import agent_traceback
from backstay.errors import AgentTimedOut, BackstayError, LeaseLost, Rejected, StoreError
from backstay.model.content import Custom
from backstay.model.failure_reasons import code_of, failure_of, message_of, raised_by, with_traceback
from backstay.model.history.projection import refusal_mark
from backstay.model.ids import TurnId
from backstay.model.turn import (
    COMPACTOR,
    REFUSALS,
    Cancelled,
    Completed,
    Failed,
    Finished,
    Interrupted,
    OpenTurn,
    Outcome,
)
from backstay.runtime.async_store import AsyncStore
from backstay.runtime.compaction.compactor import Compactor
from backstay.runtime.events.notifier import Notifier
from backstay.runtime.timing import Timing
from backstay.runtime.turns.agent_driver import AgentDriver
from backstay.runtime.turns.agent_log import log_agent_error
from backstay.runtime.turns.agent_pool import Pool, close_agent
from backstay.runtime.turns.live_turn import LiveTurn
from backstay.runtime.turns.recorder import Recorder
from backstay.runtime.turns.served_agents import ServedAgents
from backstay.runtime.turns.tool_runner import ToolRunner
from backstay.store import commands

log = logging.getLogger("backstay.runtime")

_CANCELLED = Cancelled("cancelled on request")


class Runner:
    """Runs turns with the agents of the app."""

    def __init__(
        self,
        store: AsyncStore,
        notifier: Notifier,
        agents: Mapping[str, AgentFactory],
        pool: Pool,
        compactor: Compactor,
        *,
        timing: Timing,
        lease_seconds: float,
        follows_on: bool = True,
        debug: bool = False,
    ) -> None:
        self._follows_on, self._debug = follows_on, debug
        self._store, self._notifier, self._agents = store, notifier, agents
        self._timing, self._lease_seconds = timing, lease_seconds
        self._tool_runner = ToolRunner()
        self._abandoned_agents = 0
        self._driver = AgentDriver(store, agents, pool, compactor)
        self.pool, self.compactor = pool, compactor
        self.closing = asyncio.Event()
        self._recorders: set[Recorder] = set()
        self.served = ServedAgents(agents, self.closing)
        self.on_completed: Callable[[OpenTurn, Finished], None] | None = None
        self._outcomes: dict[TurnId, asyncio.Future[Outcome | None]] = {}

    def expect(self, turn: TurnId) -> None:
        """From now on, `outcome_of` knows that this turn runs in this process."""
        self._outcomes.setdefault(turn, asyncio.get_running_loop().create_future())

    def outcome_of(self, turn: TurnId) -> "asyncio.Future[Outcome | None] | None":
        """The outcome of a turn that runs in this process, once it is durable. Shield it: others wait for it too.

        The result is None if this process could not end the turn; then the store has, or will have, its outcome.
        Without a future, the turn does not run here.
        """
        return self._outcomes.get(turn)

    def settle(self, turn: TurnId, outcome: Outcome | None) -> None:
        """The turn no longer runs in this process."""
        future = self._outcomes.pop(turn, None)
        if future is not None and not future.done():
            future.set_result(outcome)

    @property
    def abandoned(self) -> int:
        """The number of agents and tools that did not stop when their turn ended, and were abandoned."""
        threads = sum(getattr(factory.shared, "abandoned", 0) for factory in self._agents.values())
        return self._abandoned_agents + self._tool_runner.abandoned + threads

    def start_closing(self) -> None:
        """Start no more turns; running ones have the grace period to end."""
        self.closing.set()
        for recorder in self._recorders:
            recorder.attention.set()

    async def run(self, opened: OpenTurn) -> None:
        """Run the turn, then the waiting turns that its end opened for this process."""
        following: OpenTurn | None = opened
        while following is not None:
            following = await self._run_one(following)

    async def aclose(self) -> None:
        """Close the agents: the live ones, and those shared by all turns."""
        await self.pool.aclose()
        await self.compactor.aclose()
        for name, factory in self._agents.items():
            if factory.shared is not None:
                await close_agent(factory.shared, name, self._timing.grace)

    async def _run_one(self, opened: OpenTurn) -> OpenTurn | None:
        self.expect(opened.id)
        self._store.observer.started(opened)
        recorder = self._recorder_of(opened)
        turn = LiveTurn(recorder, self._store, self._notifier, self._tool_runner)
        writer_task, agent_task = self._start_tasks(opened, turn, recorder)
        self._recorders.add(recorder)
        finished: Finished | None = None
        try:
            finished = await self._run_to_end(turn, recorder, writer_task, agent_task)
        finally:
            self._clean_up(opened, recorder, writer_task, agent_task, finished)
        return None if finished is None else finished.opened

    def _recorder_of(self, opened: OpenTurn) -> Recorder:
        # If the database was taken away, callers that wait for the outcome ask the store, and get its error. The
        # recorder retries for most of its lease, as after any other failed write: the file may come back.
        return Recorder(
            self._store,
            self._notifier,
            opened,
            self._timing,
            self._lease_seconds,
            on_store_replaced=lambda: self.settle(opened.id, None),
        )

    def _start_tasks(
        self, opened: OpenTurn, turn: LiveTurn, recorder: Recorder
    ) -> tuple["asyncio.Task[None]", "asyncio.Task[str]"]:
        """Start the recorder and the agent. The task of the turn owns both, and ends them.

        Writing is a task of its own: cancelling the agent or the turn does not interrupt a write. It also reads the
        inbox: a cancel request must arrive while the agent computes silently.
        """
        writer_task = asyncio.create_task(recorder.run(), name=f"recorder of {opened.id}")
        agent_task = asyncio.create_task(self._driver.drive(turn, recorder), name=f"agent of {opened.id}")
        agent_task.add_done_callback(lambda task: log_agent_error(opened, task))
        for task in (agent_task, writer_task):
            task.add_done_callback(lambda _: recorder.attention.set())
        return writer_task, agent_task

    async def _run_to_end(
        self,
        turn: LiveTurn,
        recorder: Recorder,
        writer_task: "asyncio.Task[None]",
        agent_task: "asyncio.Task[str]",
    ) -> Finished | None:
        """Wait for the outcome, stop both tasks, and end the turn; None if this process cannot end it."""
        outcome = await self._outcome(recorder, writer_task, agent_task)
        if outcome is None:
            # Another process has ended the turn. Its outcome is in the store; the agent may take long to stop.
            self.settle(turn.id, None)
        # The order matters. First stop the agent, then the recorder: nothing is added to the buffer after the last
        # write took it.
        await self._stop_task(agent_task)
        recorder.stop()
        abandoned = await turn.wait_for_calls(self._timing.grace)
        self._tool_runner.abandoned += abandoned  # Not in one line: others may change the count during the wait.
        refused = await self._last_write(writer_task)
        if refused is not None and isinstance(outcome, Completed):
            outcome = self._outcome_of_recorder(recorder, writer_task)
        # With a lost lease nothing is written: the process that took the session over ends the turn.
        if outcome is None or isinstance(refused, LeaseLost):
            return None
        return await self._finish(turn, recorder, outcome)

    def _clean_up(
        self,
        opened: OpenTurn,
        recorder: Recorder,
        writer_task: "asyncio.Task[None]",
        agent_task: "asyncio.Task[str]",
        finished: Finished | None,
    ) -> None:
        # After a second cancellation of the turn's task one of the two may still run. A recorder without an owner would
        # renew the lease forever, and no other process could take the session over.
        recorder.stop()
        self._recorders.discard(recorder)
        writer_task.cancel()
        writer_task.add_done_callback(_consume_exception)
        if finished is not None:
            self._driver.remember(opened, finished)
        self._return_agent(opened, finished, unresponsive=not agent_task.done())
        outcome = None if finished is None else finished.turn.outcome
        self._store.observer.ended(opened, outcome)
        self.settle(opened.id, outcome)

    def _return_agent(self, opened: OpenTurn, finished: Finished | None, *, unresponsive: bool) -> None:
        """Return a live agent to the pool if its turn completed; otherwise discard it: its memory is unknown."""
        if finished is not None and isinstance(finished.turn.outcome, Completed):
            self.pool.give_back(opened.id, finished)
        else:
            self.pool.discard(opened.id, close=not unresponsive)

    # --- the outcome ------------------------------------------------------------------------------------------------

    async def _outcome(
        self, recorder: Recorder, writer_task: "asyncio.Task[None]", agent_task: "asyncio.Task[str]"
    ) -> Outcome | None:
        """The outcome of the turn, even if this task is cancelled; None if the turn is no longer ours."""
        try:
            return await self._wait_for_outcome(recorder, writer_task, agent_task)
        except asyncio.CancelledError:
            # The program cancels all its tasks. Still end the turn: otherwise it would run on for other processes until
            # its lease expires.
            return Interrupted("the program was stopped")
        except Exception:
            log.exception(
                "outcome of a turn could not be determined",
                extra={"session": recorder.opened.session, "turn": recorder.opened.id},
            )
            reason = f"Backstay itself failed (turn {recorder.opened.id}; the log has the traceback)"
            return Failed(reason, code="internal_error")

    async def _wait_for_outcome(
        self, recorder: Recorder, writer_task: "asyncio.Task[None]", agent_task: "asyncio.Task[str]"
    ) -> Outcome | None:
        """The outcome: by the agent, a cancel request, closing or a timeout. None if the turn is no longer ours."""
        began = asyncio.get_running_loop().time()
        over: float | None = None
        while True:
            # The recorder first: if the output cannot be stored, the agent's own outcome does not count.
            if writer_task.done():
                return self._outcome_of_recorder(recorder, writer_task)
            if agent_task.done():
                return self._outcome_of_agent(agent_task, recorder)
            if recorder.cancel_requested:
                return _CANCELLED
            # Closing ends the turn only after the grace period: the agent may still finish by itself.
            if over is None and self.closing.is_set():
                over = asyncio.get_running_loop().time() + self._timing.grace
            late = self._timed_out(recorder, began, over)
            if late is not None:
                return late
            # No wake-up is lost: there is no `await` between the checks and this line.
            recorder.attention.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._seconds_until_due(recorder, began, over)):
                    await recorder.attention.wait()

    def _outcome_of_agent(self, agent_task: "asyncio.Task[str]", recorder: Recorder) -> Outcome:
        """The outcome according to the agent's task. An agent that stopped after a cancel request was cancelled."""
        if recorder.cancel_requested:
            return _CANCELLED
        if agent_task.cancelled():
            return Failed("the agent cancelled itself")
        error = agent_task.exception()
        if error is None:
            return Completed(agent_task.result())
        source = "the summariser" if recorder.opened.agent == COMPACTOR else "the agent"
        failed = failure_of(error, recorder.opened.id, source)
        shown = self._debug and failed.code == "agent_raised"
        return with_traceback(failed, agent_traceback(raised_by(error))) if shown else failed

    def _outcome_of_recorder(self, recorder: Recorder, writer_task: "asyncio.Task[None]") -> Outcome | None:
        """The outcome after the recorder has ended: invalid output, or a failing store.

        None if the turn is no longer ours.
        """
        match None if writer_task.cancelled() else writer_task.exception():
            case Rejected() as error:
                return failure_of(error, recorder.opened.id)
            case StoreError() as error:
                return Interrupted(f"the store failed: {message_of(error)}")
            case _:
                return None

    def _timed_out(self, recorder: Recorder, began: float, over: float | None) -> Outcome | None:
        now = asyncio.get_running_loop().time()
        if over is not None and now >= over:
            return Interrupted("the program was closed")
        if self._timing.turn_timeout is not None and now - began >= self._timing.turn_timeout:
            return _timed_out(f"the agent took longer than {self._timing.turn_timeout:g} s")
        step = None if recorder.waits else self._timing.silence_timeout
        if step is not None and now - recorder.last_activity >= step:
            return _timed_out(f"the agent sent nothing for {step:g} s")
        return None

    def _seconds_until_due(self, recorder: Recorder, began: float, over: float | None) -> float | None:
        now = asyncio.get_running_loop().time()
        limits = [] if over is None else [over - now]
        if self._timing.turn_timeout is not None:
            limits.append(began + self._timing.turn_timeout - now)
        if self._timing.silence_timeout is not None:
            since = now if recorder.waits else recorder.last_activity
            limits.append(since + self._timing.silence_timeout - now)
        return max(0.0, min(limits)) if limits else None

    async def _stop_task(self, task: "asyncio.Task[object]") -> None:
        """Cancel a task and wait for its end, at most for the grace period.

        A task that ignores its cancellation is abandoned: the recorder accepts no output from it.
        """
        # The turn has its outcome: an exception of the task is retrieved, so that asyncio does not report it.
        task.add_done_callback(_consume_exception)
        if not task.done():
            task.cancel()
            _, unresponsive = await asyncio.wait({task}, timeout=self._timing.grace)
            self._abandoned_agents += len(unresponsive)

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _last_write(self, writer_task: "asyncio.Task[None]") -> BackstayError | None:
        """Wait for the write under way; returns the error that ended the recorder, if any."""
        # Not cancelled: the write under way returns the `OpenTurn` that the end of the turn needs.
        await asyncio.wait({writer_task})
        error = None if writer_task.cancelled() else writer_task.exception()
        if isinstance(error, LeaseLost):
            log.warning("turn was taken over", extra={"task": writer_task.get_name()})
        elif isinstance(error, StoreError):
            log.error("turn could not be written", extra={"task": writer_task.get_name()}, exc_info=error)
        elif error is not None and not isinstance(error, BackstayError):
            raise error
        return error

    async def _finish(self, turn: LiveTurn, recorder: Recorder, outcome: Outcome) -> Finished | None:
        compact = isinstance(outcome, Completed) and await self._is_too_long(turn, recorder)
        # Do not start the next turn while stopping, nor in an app that closes before the turn can end.
        agents: Collection[str] = self.served if self._follows_on and not isinstance(outcome, Interrupted) else ()
        try:
            finished = await self._write_end(recorder, outcome, agents, compact=compact)
        except LeaseLost:
            return None
        except StoreError:
            log.exception("turn could not be ended", extra={"turn": recorder.opened.id})
            return None
        # The same transaction may have opened the next turn, under a new fence: followers need the newer one.
        fence = (finished.opened or recorder.opened).fence
        self._notifier.publish(recorder.opened.session, fence, finished.event)
        completed = isinstance(finished.turn.outcome, Completed)
        if completed and turn.agent != COMPACTOR and self.on_completed is not None:
            self.on_completed(recorder.opened, finished)
        return finished

    async def _write_end(
        self, recorder: Recorder, outcome: Outcome, agents: Collection[str], *, compact: bool
    ) -> Finished:
        """End the turn with its remaining output.

        If that is invalid, the turn fails, with the valid part of the output.
        """
        bodies, run = [*recorder.take_unwritten(), *_mark_of(recorder.opened, outcome)], self._store.run
        try:
            return await recorder.retry_while_leased(
                lambda: run(commands.finish(recorder.opened, outcome, bodies=bodies, agents=agents, compact=compact))
            )
        except (LeaseLost, StoreError):
            raise
        except BackstayError as error:
            # A rejected write stored nothing: store the valid part first, then the outcome.
            failed = failure_of(error, recorder.opened.id)
            await recorder.store_valid_bodies(bodies)
            return await recorder.retry_while_leased(
                lambda: run(commands.finish(recorder.opened, failed, agents=agents))
            )

    async def _is_too_long(self, turn: LiveTurn, recorder: Recorder) -> bool:
        """Whether a compaction is due. An error here is logged and does not affect the turn."""
        if self.closing.is_set() or turn.agent == COMPACTOR:
            return False
        try:
            return await self.compactor.due(turn, recorder)
        except Exception:
            log.warning("size of a session could not be determined", extra={"session": turn.session}, exc_info=True)
            return False


def _timed_out(reason: str) -> Failed:
    return Failed(reason, code=code_of(AgentTimedOut), hint=AgentTimedOut.hint)


def _mark_of(turn: OpenTurn, outcome: Outcome) -> list[Custom]:
    """The mark of a refused turn, which keeps its messages from the agents; none for other turns."""
    match outcome:
        case Failed(code=code) if code in REFUSALS and turn.agent != COMPACTOR:
            return [refusal_mark(code)]
        case _:
            return []


def _consume_exception(task: "asyncio.Task[object]") -> None:
    if not task.cancelled():
        task.exception()
