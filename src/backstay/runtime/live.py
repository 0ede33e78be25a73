"""A live turn: what its agent sees and may ask for."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from backstay.agents.tools import MayHaveRun, Tool, ToolFailed
from backstay.errors import LeaseLost, Rejected, StoreError
from backstay.model.content import Json, ToolCall, ToolResult
from backstay.model.ids import SessionId, TurnId, WindowId
from backstay.model.message import Message
from backstay.model.turn import Approval, OpenTurn, Steering
from backstay.runtime.crossing import Crossing
from backstay.runtime.ledger import Ledger, Line
from backstay.runtime.pulse import Pulse
from backstay.runtime.recorder import Recorder, TurnOver
from backstay.runtime.workshop import ToolExited, Workshop

T = TypeVar("T")


class LiveTurn:
    """One running turn. The same object in all its tasks and threads; its window is read live."""

    def __init__(
        self,
        recorder: Recorder,
        crossing: Crossing,
        pulse: Pulse,
        workshop: Workshop,
        *,
        messages: tuple[Message, ...],
        ledger: Ledger,
    ) -> None:
        self._recorder, self._crossing, self._pulse = recorder, crossing, pulse
        self._workshop, self._ledger = workshop, ledger
        self._opened: OpenTurn = recorder.proof
        self._calls = 0
        self.messages = messages

    @property
    def id(self) -> TurnId:
        return self._opened.id

    @property
    def session(self) -> SessionId:
        return self._opened.session

    @property
    def owner(self) -> str:
        return self._opened.owner

    @property
    def input(self) -> Message:
        return self._opened.input

    @property
    def window(self) -> WindowId:
        return self._recorder.proof.window

    @property
    def cancelled(self) -> bool:
        return self._recorder.cancel_asked.is_set()

    async def steering(self) -> tuple[Steering, ...]:
        return await self._recorder.steering()

    async def call(self, tool: Tool, arguments: Mapping[str, Json]) -> Any:  # Any: whatever JSON the tool returns
        earlier = self._ledger.recall(tool.name, dict(arguments))
        if earlier is not None and earlier.result is not None:
            return _remembered(tool, earlier.result)
        if earlier is not None and not earlier.never_ran and not tool.idempotent:
            raise MayHaveRun(f"{tool.name} was interrupted; it is not known whether it ran")
        call, key = await self._intend(tool, dict(arguments), earlier)
        if tool.approval and await self._decision(call) == "denied":
            await self._return(ToolResult(call, "denied by a person", error=True))
            raise ToolFailed(f"{tool.name} was denied by a person", hint="Tell the person, or find another way.")
        return await self._use(tool, arguments, call, key)

    async def _intend(self, tool: Tool, arguments: dict[str, Json], earlier: Line | None) -> tuple[str, str]:
        """Write down that the tool is about to run; the id of the call, and its key."""
        self._calls += 1
        call = ToolCall(
            f"ledger-{self._calls}", tool.name, arguments, approval=tool.approval, idempotent=tool.idempotent
        )
        return call.id, await self._recorder.intend(call, None if earlier is None else earlier.call.ordinal)

    async def _use(self, tool: Tool, arguments: Mapping[str, Json], call: str, key: str) -> Any:  # Any: JSON
        """Run the tool, and write down what came of it before the agent sees it."""
        try:
            output = await self._or_over(self._workshop.run(tool, arguments, key))
            await self._return(ToolResult(call, output))
        except (LeaseLost, StoreError, TurnOver, asyncio.CancelledError):
            raise
        except (Exception, SystemExit) as error:
            raised = error.__cause__ if isinstance(error, ToolExited) else error
            reason = f"{type(raised).__name__}: {raised}"
            if isinstance(error, Rejected):
                reason = f"it returned something that is no JSON ({error})"
            await self._return(ToolResult(call, reason, error=True))
            raise ToolFailed(f"{tool.name} failed: {reason}") from error
        return output

    async def _return(self, result: ToolResult) -> None:
        self._recorder.keep(result)
        await self._recorder.sync()

    async def _decision(self, call: str) -> Approval:
        """Wait until a person has decided, or the turn is over."""
        with self._pulse.watch(self.session, self.owner) as watch, self._recorder.waiting_for_others():
            while True:
                seen = max(watch.head, self._recorder.proof.event)
                calls = await self._crossing.read(self._crossing.store.calls, self.id, owner=self.owner)
                found = next(line.approval for line in calls if line.call == call)
                if found != "asked":
                    return found
                await self._or_over(watch.beyond(seen))

    async def _or_over(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something, but not longer than the turn lasts: what it started ends with it."""
        task = asyncio.ensure_future(work)
        over = asyncio.ensure_future(self._recorder.over.wait())
        try:
            await asyncio.wait({task, over}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise TurnOver(f"{self.id} has ended")
            return task.result()
        finally:
            task.cancel()
            over.cancel()


def _remembered(tool: Tool, result: ToolResult) -> Any:  # Any: whatever JSON the tool returned
    """The result of an earlier call, as the agent would have got it then."""
    if result.error:
        raise ToolFailed(f"{tool.name} failed: {result.output}")
    return result.output
