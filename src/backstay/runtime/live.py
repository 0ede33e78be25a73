"""A live turn: what its agent sees and may ask for."""

import asyncio
import inspect
from collections.abc import Mapping
from typing import Any

from backstay.agents.tools import MayHaveRun, Tool, ToolFailed
from backstay.errors import BackstayError
from backstay.model.content import Json, ToolCall, ToolResult
from backstay.model.ids import SessionId, TurnId, WindowId
from backstay.model.message import Message
from backstay.model.turn import Approval, OpenTurn, Steering
from backstay.runtime.crossing import Crossing
from backstay.runtime.ledger import Ledger, Line
from backstay.runtime.pulse import Pulse
from backstay.runtime.recorder import Recorder


class LiveTurn:
    """One running turn. The same object in all its tasks and threads; its window is read live."""

    def __init__(
        self,
        recorder: Recorder,
        crossing: Crossing,
        pulse: Pulse,
        *,
        messages: tuple[Message, ...],
        ledger: Ledger,
    ) -> None:
        self._recorder, self._crossing, self._pulse, self._ledger = recorder, crossing, pulse, ledger
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
        return (await self._recorder.sync(steering=True)).steering

    async def call(self, tool: Tool, arguments: Mapping[str, Json]) -> Any:  # Any: whatever JSON the tool returns
        earlier = self._ledger.recall(tool.name, dict(arguments))
        if earlier is not None and earlier.result is not None:
            return _remembered(tool, earlier.result)
        if earlier is not None and not tool.idempotent:
            raise MayHaveRun(f"{tool.name} was interrupted; it is not known whether it ran")
        key, call = await self._intend(tool, dict(arguments), earlier)
        if tool.approval and await self._decision(call) == "denied":
            await self._recorder.put(ToolResult(call, "denied by a person", error=True))
            raise ToolFailed(f"{tool.name} was denied by a person", hint="Tell the person, or find another way.")
        try:
            output = await _run(tool, arguments, key)
        except BackstayError:
            raise
        except Exception as error:
            await self._recorder.put(ToolResult(call, f"{type(error).__name__}: {error}", error=True))
            await self._recorder.sync()
            raise ToolFailed(f"{tool.name} failed: {type(error).__name__}: {error}") from error
        await self._recorder.put(ToolResult(call, output))
        await self._recorder.sync()
        return output

    async def _intend(self, tool: Tool, arguments: dict[str, Json], earlier: Line | None) -> tuple[str, str]:
        """Write down that the tool is about to run; its key, and the id of the call."""
        self._calls += 1
        call = f"call-{self._calls}"
        if earlier is not None:
            self._recorder.repeat(call, earlier.call.ordinal)
        await self._recorder.put(
            ToolCall(call, tool.name, arguments, approval=tool.approval, idempotent=tool.idempotent)
        )
        answer = await self._recorder.sync()
        return answer.keys[call], call

    async def _decision(self, call: str) -> Approval:
        """Wait until a person has decided."""
        with self._pulse.watch(self.session, self.owner) as watch:
            while True:
                seen = max(watch.head, self._recorder.proof.event)
                calls = await self._crossing.read(self._crossing.store.calls, self.id, owner=self.owner)
                found = next(line.approval for line in calls if line.call == call)
                if found != "asked":
                    return found
                await watch.beyond(seen)


def _remembered(tool: Tool, result: ToolResult) -> Any:  # Any: whatever JSON the tool returned
    """The result of an earlier call, as the agent would have got it then."""
    if result.error:
        raise ToolFailed(f"{tool.name} failed: {result.output}")
    return result.output


async def _run(tool: Tool, arguments: Mapping[str, Json], key: str) -> Any:  # Any: whatever JSON the tool returns
    """Run the tool's function: on the loop if it is async, else on a thread."""
    named = {**arguments, "key": key} if tool.takes_key else dict(arguments)
    if inspect.iscoroutinefunction(tool.function):
        return await tool.function(**named)
    return await asyncio.to_thread(tool.function, **named)
