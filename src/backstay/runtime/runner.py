"""The runner: takes a turn that was opened for this process from its first word to its outcome."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping

from backstay.agents.adapters import Builder
from backstay.errors import BackstayError, LeaseLost, Rejected, StoreError
from backstay.model.projection import readable
from backstay.model.turn import Cancelled, Completed, Failed, Interrupted, OpenTurn, Outcome
from backstay.runtime import context
from backstay.runtime.crossing import Crossing
from backstay.runtime.ledger import Ledger
from backstay.runtime.live import LiveTurn
from backstay.runtime.pulse import Pulse
from backstay.runtime.recorder import Recorder
from backstay.runtime.timing import Timing
from backstay.store.port import Store

log = logging.getLogger("backstay.runtime")


class Runner:
    """Runs turns for the agents it was given."""

    def __init__(
        self, crossing: Crossing, pulse: Pulse, agents: Mapping[str, Builder], timing: Timing, lease_seconds: float
    ) -> None:
        self._crossing, self._pulse, self._agents = crossing, pulse, agents
        self._timing, self._lease_seconds = timing, lease_seconds
        self.closing = asyncio.Event()
        self.on_completed: Callable[[OpenTurn], None] | None = None
        self.abandoned = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The agents that are served here."""
        return tuple(self._agents)

    async def run(self, opened: OpenTurn) -> None:
        """Run the turn, and those that waited behind it, until somebody else's turn has come."""
        following: OpenTurn | None = opened
        while following is not None:
            following = await self._run_one(following)

    async def _run_one(self, opened: OpenTurn) -> OpenTurn | None:
        recorder = Recorder(self._crossing, self._pulse, opened, self._timing, self._lease_seconds)
        writing = asyncio.create_task(recorder.run(), name=f"write {opened.id}")
        mail = asyncio.create_task(recorder.read_mail(), name=f"mail of {opened.id}")
        speaking = asyncio.create_task(self._speak(opened, recorder), name=f"speak {opened.id}")
        try:
            outcome = await self._judge(recorder, writing, speaking)
        finally:
            await self._quieten(speaking)
            await self._quieten(mail)
            recorder.stop()
        if outcome is None or not await self._written(writing):
            return None
        return await self._finish(recorder, outcome)

    async def _speak(self, opened: OpenTurn, recorder: Recorder) -> None:
        """Let the agent answer. Everything it starts inherits the turn."""
        store = self._crossing.store
        page = await self._crossing.read(store.messages, opened.session, owner=opened.owner)
        ledger = Ledger()
        if opened.root != opened.id:
            calls = await self._crossing.read(store.ledger, opened.root, owner=opened.owner)
            ledger = Ledger(calls, page.messages)
        messages = readable(page.messages)
        turn = LiveTurn(recorder, self._crossing, self._pulse, messages=messages, ledger=ledger)
        context.enter(turn)
        agent = self._agents[opened.agent or ""]()
        words = agent.stream(turn)
        try:
            async for body in words:
                await recorder.put(body)
        finally:
            if isinstance(words, AsyncGenerator):
                await words.aclose()

    async def _judge(
        self, recorder: Recorder, writing: "asyncio.Task[None]", speaking: "asyncio.Task[None]"
    ) -> Outcome | None:
        """How the turn ends: by its agent, by somebody's wish, by our closing, by time; None if it is not ours."""
        asked = asyncio.create_task(recorder.cancel_asked.wait())
        closing = asyncio.create_task(self.closing.wait())
        began = asyncio.get_running_loop().time()
        try:
            while True:
                late = self._late(recorder, began)
                if late is not None:
                    return late
                done, _ = await asyncio.wait(
                    {speaking, writing, asked, closing},
                    timeout=self._patience(recorder, began),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if writing in done:
                    return self._refused(writing)
                if speaking in done:
                    return self._told_by(speaking, recorder)
                if asked in done:
                    return Cancelled("somebody asked for it to stop")
                if closing in done and await self._closing_time(speaking):
                    return self._told_by(speaking, recorder)
                if closing in done:
                    return Interrupted("the program was closed")
        finally:
            asked.cancel()
            closing.cancel()

    def _told_by(self, speaking: "asyncio.Task[None]", recorder: Recorder) -> Outcome:
        """The outcome that the agent's own end tells."""
        if speaking.cancelled():
            return Failed("the agent cancelled itself")
        error = speaking.exception()
        if error is None:
            return Completed() if recorder.spoken else Completed("the agent said nothing")
        if isinstance(error, BackstayError):
            return Failed(str(error))
        return Failed(f"{type(error).__name__}: {error}")

    def _refused(self, writing: "asyncio.Task[None]") -> Outcome | None:
        """What it means that writing has ended: nonsense from the agent, or a turn that is no longer ours."""
        error = writing.exception()
        return Failed(str(error)) if isinstance(error, Rejected) else None

    async def _closing_time(self, speaking: "asyncio.Task[None]") -> bool:
        """Give the agent its grace time; whether it ended by itself."""
        done, _ = await asyncio.wait({speaking}, timeout=self._timing.grace)
        return speaking in done

    def _late(self, recorder: Recorder, began: float) -> Outcome | None:
        now = asyncio.get_running_loop().time()
        if self._timing.turn is not None and now - began >= self._timing.turn:
            return Failed(f"the agent took longer than {self._timing.turn:g} s")
        if self._timing.step is not None and now - recorder.last_word >= self._timing.step:
            return Failed(f"the agent said nothing for {self._timing.step:g} s")
        return None

    def _patience(self, recorder: Recorder, began: float) -> float | None:
        now = asyncio.get_running_loop().time()
        limits = []
        if self._timing.turn is not None:
            limits.append(began + self._timing.turn - now)
        if self._timing.step is not None:
            limits.append(recorder.last_word + self._timing.step - now)
        return max(0.0, min(limits)) if limits else None

    async def _quieten(self, task: "asyncio.Task[None]") -> None:
        """End a task; one that will not end is left behind and counted. It can say nothing that would be heard."""
        if not task.done():
            task.cancel()
            _, stubborn = await asyncio.wait({task}, timeout=self._timing.grace)
            self.abandoned += len(stubborn)
        if task.done() and not task.cancelled():
            task.exception()

    async def _written(self, writing: "asyncio.Task[None]") -> bool:
        """Wait for the write under way; whether the turn is still ours."""
        try:
            await writing
        except LeaseLost:
            log.warning("turn lost", extra={"task": writing.get_name()})
            return False
        except StoreError:
            log.exception("turn could not be written")
            return False
        except Rejected:
            return True
        return True

    async def _finish(self, recorder: Recorder, outcome: Outcome) -> OpenTurn | None:
        names = () if self.closing.is_set() else self.names
        try:
            finished = await self._crossing.write(
                Store.finish, recorder.proof, outcome, bodies=recorder.rest(), agents=names
            )
        except LeaseLost:
            return None
        except BackstayError as error:
            return await self._finish_without(recorder, error)
        self._pulse.tell(recorder.proof.session, finished.event)
        if isinstance(outcome, Completed) and self.on_completed is not None:
            self.on_completed(recorder.proof)
        return finished.opened

    async def _finish_without(self, recorder: Recorder, error: BackstayError) -> OpenTurn | None:
        """The last words could not be stored: the turn fails for that reason, with what was stored before."""
        if isinstance(error, StoreError):
            log.error("turn could not be ended", extra={"turn": recorder.proof.id, "error": str(error)})
            return None
        finished = await self._crossing.write(Store.finish, recorder.proof, Failed(str(error)), agents=self.names)
        self._pulse.tell(recorder.proof.session, finished.event)
        return finished.opened
