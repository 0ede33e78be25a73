"""The runner: takes a turn that was opened for this process from its first word to its outcome."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping

from backstay.agents.adapters import Maker
from backstay.agents.port import Agent
from backstay.errors import AgentFailed, BackstayError, LeaseLost, Rejected, StoreError
from backstay.model.content import Body
from backstay.model.projection import readable
from backstay.model.turn import Cancelled, Completed, Failed, Interrupted, OpenTurn, Outcome
from backstay.runtime import context
from backstay.runtime.crossing import Crossing
from backstay.runtime.ledger import Ledger
from backstay.runtime.live import LiveTurn
from backstay.runtime.pulse import Pulse
from backstay.runtime.recorder import Recorder
from backstay.runtime.timing import Timing
from backstay.runtime.workshop import Workshop
from backstay.store.port import Store

log = logging.getLogger("backstay.runtime")


class Runner:
    """Runs turns for the agents it was given."""

    def __init__(
        self, crossing: Crossing, pulse: Pulse, agents: Mapping[str, Maker], timing: Timing, lease_seconds: float
    ) -> None:
        self._crossing, self._pulse, self._agents = crossing, pulse, agents
        self._timing, self._lease_seconds = timing, lease_seconds
        self._workshop = Workshop()
        self._stubborn = 0
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
        """Close the agents that served every turn."""
        for name, maker in self._agents.items():
            if maker.shared is not None:
                await self._close(maker.shared, name)

    async def _run_one(self, opened: OpenTurn) -> OpenTurn | None:
        recorder = Recorder(self._crossing, self._pulse, opened, self._timing, self._lease_seconds)
        writing = asyncio.create_task(recorder.run(), name=f"write {opened.id}")
        mail = asyncio.create_task(recorder.read_mail(), name=f"mail of {opened.id}")
        speaking = asyncio.create_task(self._speak(opened, recorder), name=f"speak {opened.id}")
        outcome: Outcome | None = Interrupted("the program was stopped")
        try:
            outcome = await self._judge(recorder, writing, speaking)
        except Exception:
            log.exception("turn could not be judged", extra={"turn": opened.id})
            outcome = Failed("something went wrong in the runtime; its log says what")
        finally:
            await self._quieten(speaking)
            await self._quieten(mail)
            recorder.stop()
        refused = await self._last_write(writing)
        if outcome is None or (refused is not None and not isinstance(refused, Rejected)):
            return None
        if refused is not None and isinstance(outcome, Completed):
            outcome = Failed(_reason(refused))
        return await self._finish(recorder, outcome)

    # --- the agent --------------------------------------------------------------------------------------------------

    async def _speak(self, opened: OpenTurn, recorder: Recorder) -> None:
        """Let the agent answer. Everything it starts inherits the turn."""
        context.enter(turn := await self._live(opened, recorder))
        maker = self._agents.get(opened.agent or "")
        if maker is None:
            raise AgentFailed(f"no agent called {opened.agent!r} is served here")
        try:
            agent = maker.make()
            try:
                await self._listen(agent.stream(turn), recorder)
            finally:
                if maker.shared is None:
                    await self._close(agent, opened.agent or "")
        except SystemExit as error:
            # It would end the whole program, and every other turn with it.
            raise AgentFailed(f"SystemExit: {error}") from error

    async def _live(self, opened: OpenTurn, recorder: Recorder) -> LiveTurn:
        store = self._crossing.store
        page = await self._crossing.read(store.messages, opened.session, owner=opened.owner)
        ledger = Ledger()
        if opened.root != opened.id:
            calls = await self._crossing.read(store.ledger, opened.root, owner=opened.owner)
            ledger = Ledger(calls, page.messages)
        return LiveTurn(
            recorder,
            self._crossing,
            self._pulse,
            self._workshop,
            messages=readable(page.messages),
            ledger=ledger,
        )

    async def _listen(self, words: AsyncIterator[Body], recorder: Recorder) -> None:
        if not isinstance(words, AsyncIterator):
            if isinstance(words, Coroutine):
                words.close()
            raise AgentFailed(
                "stream() gave no async iterator", hint="Write it as an async generator: `async def` with `yield`."
            )
        try:
            async for body in words:
                await recorder.put(body)
        except GeneratorExit:
            raise  # The loop is gone, and with it every way to close anything.
        except BaseException:
            await _close_words(words)
            raise
        await _close_words(words)

    async def _close(self, agent: Agent, name: str) -> None:
        try:
            await asyncio.wait_for(agent.aclose(), self._timing.grace)
        except Exception:
            log.warning("agent could not be closed", extra={"agent": name}, exc_info=True)

    # --- the judgement ----------------------------------------------------------------------------------------------

    async def _judge(
        self, recorder: Recorder, writing: "asyncio.Task[None]", speaking: "asyncio.Task[None]"
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
                    return Cancelled("somebody asked for it to stop")
                if closing in done:
                    watched.discard(closing)
                    over = asyncio.get_running_loop().time() + self._timing.grace
                late = self._late(recorder, began, over)
                if late is not None:
                    return late
        finally:
            asked.cancel()
            closing.cancel()

    def _told_by(self, speaking: "asyncio.Task[None]", recorder: Recorder) -> Outcome:
        """The outcome that the agent's own end tells."""
        if speaking.cancelled():
            return Failed("the agent cancelled itself")
        error = speaking.exception()
        if error is not None:
            return Failed(_reason(error))
        return Completed() if recorder.spoken else Completed("the agent said nothing")

    def _refused(self, writing: "asyncio.Task[None]") -> Outcome | None:
        """What it means that writing has ended: nonsense from the agent, or a turn that is no longer ours."""
        error = None if writing.cancelled() else writing.exception()
        return Failed(_reason(error)) if isinstance(error, Rejected) else None

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

    async def _quieten(self, task: "asyncio.Task[None]") -> None:
        """End a task; one that will not end is left behind and counted. It can say nothing that would be heard."""
        if not task.done():
            task.cancel()
            _, stubborn = await asyncio.wait({task}, timeout=self._timing.grace)
            self._stubborn += len(stubborn)
        if task.done() and not task.cancelled():
            task.exception()

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _last_write(self, writing: "asyncio.Task[None]") -> BackstayError | None:
        """Wait for the write under way; the error that ended writing, if any."""
        try:
            await writing
        except LeaseLost as error:
            log.warning("turn was taken over", extra={"task": writing.get_name()})
            return error
        except StoreError as error:
            log.exception("turn could not be written", extra={"task": writing.get_name()})
            return error
        except BackstayError as error:
            return error
        return None

    async def _finish(self, recorder: Recorder, outcome: Outcome) -> OpenTurn | None:
        bodies = recorder.rest()
        try:
            finished = await recorder.insist(
                lambda: self._crossing.write(Store.finish, recorder.proof, outcome, bodies=bodies, agents=self.names)
            )
        except LeaseLost:
            return None
        except StoreError:
            log.exception("turn could not be ended", extra={"turn": recorder.proof.id})
            return None
        except BackstayError as error:
            # The last words cannot be stored: the turn fails for that reason, with what was stored before.
            finished = await self._crossing.write(
                Store.finish, recorder.proof, Failed(_reason(error)), agents=self.names
            )
        self._pulse.tell(recorder.proof.session, finished.event)
        if isinstance(outcome, Completed) and self.on_completed is not None:
            self.on_completed(recorder.proof)
        return finished.opened


async def _close_words(words: AsyncIterator[Body]) -> None:
    if isinstance(words, AsyncGenerator):
        await words.aclose()


def _reason(error: BaseException) -> str:
    """Why an agent failed, in words that can be stored and read, whatever it raised."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # an exception that cannot even say what it is
        text = "it could not say why"
    text = text.encode(errors="replace").decode().replace("\0", "")[:2_000]
    ours = isinstance(error, BackstayError)
    return text if ours else f"{type(error).__name__}: {text}" if text else type(error).__name__
