"""The runner: takes a turn that was opened for this process from its first word to its outcome."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from backstay.agents.adapters import Maker
from backstay.errors import BackstayError, LeaseLost, Rejected, StoreError
from backstay.model.reasons import reason_of
from backstay.model.turn import COMPACTOR, Cancelled, Completed, Failed, Finished, Interrupted, OpenTurn, Outcome
from backstay.runtime.compactor import Compactor
from backstay.runtime.crossing import Crossing
from backstay.runtime.live import LiveTurn
from backstay.runtime.pool import Pool, close_agent
from backstay.runtime.pulse import Pulse
from backstay.runtime.recorder import Recorder
from backstay.runtime.speaker import Speaker
from backstay.runtime.timing import Timing
from backstay.runtime.workshop import Workshop
from backstay.store.port import Store

log = logging.getLogger("backstay.runtime")

_ASKED = Cancelled("somebody asked for it to stop")


class Runner:
    """Runs turns for the agents it was given."""

    def __init__(
        self,
        crossing: Crossing,
        pulse: Pulse,
        agents: Mapping[str, Maker],
        pool: Pool,
        compactor: Compactor,
        *,
        timing: Timing,
        lease_seconds: float,
        follows_on: bool = True,
    ) -> None:
        self._follows_on = follows_on
        self._crossing, self._pulse, self._agents = crossing, pulse, agents
        self._timing, self._lease_seconds = timing, lease_seconds
        self._workshop = Workshop()
        self._stubborn = 0
        self._speaker = Speaker(crossing, agents, pool, compactor)
        self.pool, self.compactor = pool, compactor
        self.closing = asyncio.Event()
        self.on_completed: Callable[[OpenTurn], None] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The agents that are served here; none once the app is closing."""
        return () if self.closing.is_set() else tuple(self._agents)

    @property
    def abandoned(self) -> int:
        """How many agents and tools did not stop when their turn was over, and were left behind."""
        threads = sum(getattr(maker.shared, "abandoned", 0) for maker in self._agents.values())
        return self._stubborn + self._workshop.abandoned + threads

    async def run(self, opened: OpenTurn) -> None:
        """Run the turn, and those that waited behind it, until somebody else's turn has come."""
        following: OpenTurn | None = opened
        while following is not None:
            following = await self._run_one(following)

    async def aclose(self) -> None:
        """Close the agents, those that live and those that served every turn."""
        await self.pool.aclose()
        await self.compactor.aclose()
        for name, maker in self._agents.items():
            if maker.shared is not None:
                await close_agent(maker.shared, name, self._timing.grace)

    async def _run_one(self, opened: OpenTurn) -> OpenTurn | None:
        self._crossing.witness.started(opened)
        recorder = Recorder(self._crossing, self._pulse, opened, self._timing, self._lease_seconds)
        turn = LiveTurn(recorder, self._crossing, self._pulse, self._workshop)
        writing = asyncio.create_task(recorder.run(), name=f"write {opened.id}")
        mail = asyncio.create_task(recorder.read_mail(), name=f"mail of {opened.id}")
        speaking = asyncio.create_task(self._speaker.speak(turn, recorder), name=f"speak {opened.id}")
        finished: Finished | None = None
        stubborn = False
        try:
            outcome = await self._judged(recorder, writing, speaking)
            stubborn = await self._quieten(speaking)
            await self._quieten(mail)
            recorder.stop()
            await turn.quiet(self._timing.grace)
            refused = await self._last_write(writing)
            if outcome is not None and (refused is None or isinstance(refused, Rejected)):
                if refused is not None and isinstance(outcome, Completed):
                    outcome = Failed(reason_of(refused))
                finished = await self._finish(turn, recorder, outcome)
        finally:
            self._return_agent(opened, finished, stubborn=stubborn)
            self._crossing.witness.ended(opened, None if finished is None else finished.turn.outcome)
        return None if finished is None else finished.opened

    def _return_agent(self, opened: OpenTurn, finished: Finished | None, *, stubborn: bool) -> None:
        """A live agent goes back if its turn completed; otherwise nobody knows what it remembers."""
        if finished is not None and isinstance(finished.turn.outcome, Completed):
            self.pool.give_back(opened.id, finished)
        else:
            self.pool.discard(opened.id, close=not stubborn)

    # --- the judgement ----------------------------------------------------------------------------------------------

    async def _judged(
        self, recorder: Recorder, writing: "asyncio.Task[None]", speaking: "asyncio.Task[str]"
    ) -> Outcome | None:
        """How the turn ends, whatever happens to us; None if it is not ours."""
        try:
            return await self._judge(recorder, writing, speaking)
        except asyncio.CancelledError:
            # Somebody cancels every task of the program: the turn is ended all the same, in the time that is left.
            return Interrupted("the program was stopped")
        except Exception:
            log.exception("turn could not be judged", extra={"turn": recorder.proof.id})
            return Failed("something went wrong in the runtime; its log says what")

    async def _judge(
        self, recorder: Recorder, writing: "asyncio.Task[None]", speaking: "asyncio.Task[str]"
    ) -> Outcome | None:
        """How the turn ends: by its agent, by somebody's wish, by our closing, by time; None if it is not ours."""
        asked = asyncio.create_task(recorder.cancel_asked.wait())
        closing = asyncio.create_task(self.closing.wait())
        began = asyncio.get_running_loop().time()
        watched = {speaking, writing, asked, closing}
        over: float | None = None
        try:
            while True:
                done, _ = await asyncio.wait(
                    watched, timeout=self._patience(recorder, began, over), return_when=asyncio.FIRST_COMPLETED
                )
                if writing in done:
                    return self._refused(writing)
                if speaking in done:
                    return self._told_by(speaking, recorder)
                if asked in done:
                    return _ASKED
                if closing in done:
                    watched.discard(closing)
                    over = asyncio.get_running_loop().time() + self._timing.grace
                late = self._late(recorder, began, over)
                if late is not None:
                    return late
        finally:
            asked.cancel()
            closing.cancel()

    def _told_by(self, speaking: "asyncio.Task[str]", recorder: Recorder) -> Outcome:
        """The outcome that the agent's own end tells; one that stopped because it was asked to was cancelled."""
        if recorder.cancel_asked.is_set():
            return _ASKED
        if speaking.cancelled():
            return Failed("the agent cancelled itself")
        error = speaking.exception()
        return Completed(speaking.result()) if error is None else Failed(reason_of(error))

    def _refused(self, writing: "asyncio.Task[None]") -> Outcome | None:
        """What it means that writing has ended: nonsense from the agent, or a turn that is no longer ours."""
        error = None if writing.cancelled() else writing.exception()
        return Failed(reason_of(error)) if isinstance(error, Rejected) else None

    def _late(self, recorder: Recorder, began: float, over: float | None) -> Outcome | None:
        now = asyncio.get_running_loop().time()
        if over is not None and now >= over:
            return Interrupted("the program was closed")
        if self._timing.turn is not None and now - began >= self._timing.turn:
            return Failed(f"the agent took longer than {self._timing.turn:g} s")
        step = None if recorder.kept_waiting else self._timing.step
        if step is not None and now - recorder.last_word >= step:
            return Failed(f"the agent said nothing for {step:g} s")
        return None

    def _patience(self, recorder: Recorder, began: float, over: float | None) -> float | None:
        now = asyncio.get_running_loop().time()
        limits = [] if over is None else [over - now]
        if self._timing.turn is not None:
            limits.append(began + self._timing.turn - now)
        if self._timing.step is not None:
            since = now if recorder.kept_waiting else recorder.last_word
            limits.append(since + self._timing.step - now)
        return max(0.0, min(limits)) if limits else None

    async def _quieten(self, task: "asyncio.Task[object]") -> bool:
        """End a task; whether it would not end. It is left behind then, and can say nothing that would be heard."""
        if not task.done():
            task.cancel()
            _, stubborn = await asyncio.wait({task}, timeout=self._timing.grace)
            self._stubborn += len(stubborn)
        # However late it ends: how it does is nobody's concern any more, and no trouble of the program.
        task.add_done_callback(_look_away)
        return not task.done()

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _last_write(self, writing: "asyncio.Task[None]") -> BackstayError | None:
        """Wait for the write under way; the error that ended writing, if any."""
        await asyncio.wait({writing})
        error = None if writing.cancelled() else writing.exception()
        if isinstance(error, LeaseLost):
            log.warning("turn was taken over", extra={"task": writing.get_name()})
        elif isinstance(error, StoreError):
            log.error("turn could not be written", extra={"task": writing.get_name()}, exc_info=error)
        elif error is not None and not isinstance(error, BackstayError):
            raise error
        return error

    async def _finish(self, turn: LiveTurn, recorder: Recorder, outcome: Outcome) -> Finished | None:
        compact = isinstance(outcome, Completed) and await self._is_too_long(turn, recorder)
        # Who is being stopped starts nothing; nor does who will be gone when what waits would be answered.
        agents = self.names if self._follows_on and not isinstance(outcome, Interrupted) else ()
        try:
            finished = await self._write_end(recorder, outcome, agents, compact=compact)
        except LeaseLost:
            return None
        except StoreError:
            log.exception("turn could not be ended", extra={"turn": recorder.proof.id})
            return None
        self._pulse.tell(recorder.proof.session, finished.event)
        completed = isinstance(finished.turn.outcome, Completed)
        if completed and turn.agent != COMPACTOR and self.on_completed is not None:
            self.on_completed(recorder.proof)
        return finished

    async def _write_end(
        self, recorder: Recorder, outcome: Outcome, agents: tuple[str, ...], *, compact: bool
    ) -> Finished:
        """End the turn with its last words. If they cannot be stored, it fails for that reason, with those that can."""
        bodies, write = recorder.rest(), self._crossing.write
        try:
            return await recorder.insist(
                lambda: write(Store.finish, recorder.proof, outcome, bodies=bodies, agents=agents, compact=compact)
            )
        except (LeaseLost, StoreError):
            raise
        except BackstayError as error:
            failed = Failed(reason_of(error))
            await recorder.keep_what_is_sound(bodies)
            return await recorder.insist(lambda: write(Store.finish, recorder.proof, failed, agents=agents))

    async def _is_too_long(self, turn: LiveTurn, recorder: Recorder) -> bool:
        """Whether a compaction is due; nothing that goes wrong with that question can hurt the turn."""
        if self.closing.is_set() or turn.agent == COMPACTOR:
            return False
        try:
            return await self.compactor.due(turn, recorder)
        except Exception:
            log.warning("it is not known how long a session is", extra={"session": turn.session}, exc_info=True)
            return False


def _look_away(task: "asyncio.Task[object]") -> None:
    if not task.cancelled():
        task.exception()
