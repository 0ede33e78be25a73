"""A live turn: what its agent sees and may ask for."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from backstay.agents.tools import MayHaveRun, Tool, ToolFailed
from backstay.errors import InvalidPayload, LeaseLost, Rejected, StoreError
from backstay.model.address import Address, WorkspaceAddress
from backstay.model.codec import check_body
from backstay.model.content import Json, ToolCall, ToolResult
from backstay.model.ids import SessionId, TurnId, WindowId
from backstay.model.message import Message
from backstay.model.projection import readable
from backstay.model.reasons import reason_of
from backstay.model.search import SearchPage
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
    ) -> None:
        self._recorder, self._crossing, self._pulse = recorder, crossing, pulse
        self._workshop, self._ledger = workshop, Ledger()
        self._opened: OpenTurn = recorder.proof
        self._calls = 0
        self._under_way: set[asyncio.Task[object] | None] = set()
        self._messages: tuple[Message, ...] | None = None
        self.began = recorder.proof.event
        self._said: tuple[Message, ...] = ()

    def show(self, messages: tuple[Message, ...], said: tuple[Message, ...], ledger: Ledger) -> None:
        """Let the agent read this history, and what this turn said and called before, if it goes on."""
        self._messages, self._said, self._ledger = messages, said, ledger

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
    def agent(self) -> str | None:
        """The name of the agent that answers it."""
        return self._opened.agent

    @property
    def input(self) -> Message:
        return self._recorder.proof.input

    @property
    def messages(self) -> tuple[Message, ...]:
        if self._messages is None:
            # A live agent that was told the history once, and asks for it all the same.
            page = self._crossing.store.messages(
                self.session, owner=self.owner, window=self.window, before=self.input.position + 1
            )
            self._messages = readable(page.messages)
        return self._messages

    @property
    def shown(self) -> tuple[Message, ...] | None:
        """The history, if anybody has read it yet."""
        return self._messages

    @property
    def said(self) -> tuple[Message, ...]:
        return self._said

    @property
    def window(self) -> WindowId:
        return self._recorder.proof.window

    @property
    def cancelled(self) -> bool:
        return self._recorder.cancel_asked.is_set()

    async def steering(self) -> tuple[Steering, ...]:
        return await self._recorder.steering()

    async def workspace(self) -> str | None:
        store = self._crossing.store
        spellings = await self._crossing.read(store.addresses, self.session, owner=self.owner)
        addresses = map(Address.parse, spellings)
        paths = {one.path for one in addresses if isinstance(one, WorkspaceAddress) and one.host == store.host}
        return paths.pop() if len(paths) == 1 else None

    async def search(self, text: str, *, limit: int = 5) -> SearchPage:
        return await self._crossing.read(self._crossing.store.search, text, owner=self.owner, limit=limit)

    async def quiet(self, seconds: float) -> None:
        """Wait until nobody is in the middle of a call any more: a turn that is over leaves no task behind."""
        others = {task for task in self._under_way if task is not None and not task.done()}
        if others:
            await asyncio.wait(others, timeout=seconds)

    async def call(self, tool: Tool, arguments: Mapping[str, Json]) -> Any:  # Any: whatever JSON the tool returns
        task = asyncio.current_task()
        self._under_way.add(task)
        try:
            return await self._call(tool, arguments)
        finally:
            self._under_way.discard(task)

    async def _call(self, tool: Tool, arguments: Mapping[str, Json]) -> Any:  # Any: whatever JSON the tool returns
        arguments = self._frozen(tool, arguments)
        earlier = self._ledger.recall(tool.name, arguments)
        if earlier is not None and earlier.result is not None:
            return _remembered(tool, earlier.result)
        if earlier is not None and self._may_have_run(earlier, tool):
            raise MayHaveRun(f"{tool.name} was interrupted; it is not known whether it ran")
        call, key = await self._intend(tool, arguments, earlier)
        if tool.approval and await self._decision(call) == "denied":
            await self._return(ToolResult(call, "denied by a person", error=True))
            raise ToolFailed(f"{tool.name} was denied by a person", hint="Tell the person, or find another way.")
        return await self._use(tool, arguments, call, key)

    def _frozen(self, tool: Tool, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """The arguments as they are now: what is written down is what the tool gets, whatever becomes of theirs."""
        if not isinstance(arguments, Mapping):
            raise InvalidPayload(f"the arguments of {tool.name} are {arguments!r}", hint="Pass a mapping.")
        call = check_body(ToolCall("call", tool.name, dict(arguments)), self._crossing.store.limits)
        return dict(call.arguments) if isinstance(call, ToolCall) else {}

    def _may_have_run(self, earlier: Line, tool: Tool) -> bool:
        """Whether a call without a result must not be made again: it ran, perhaps, and would do it twice."""
        return earlier.call.turn == self.id or not (earlier.never_ran or tool.idempotent)

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
        except Exception as error:
            raised = error.__cause__ if isinstance(error, ToolExited) and error.__cause__ is not None else error
            reason = reason_of(raised)
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

    async def _or_over(self, work: Coroutine[object, object, T]) -> T:
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
