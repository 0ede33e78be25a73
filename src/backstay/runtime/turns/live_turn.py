"""A running turn as its agent sees it."""

import asyncio
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping
from typing import TypeVar

from backstay.agents.tools import MayHaveRun, Tool, ToolFailed
from backstay.concurrency.child_tasks import child_tasks
from backstay.errors import InvalidPayload, LeaseLost, Rejected, StoreError
from backstay.model.addresses.address import Address, WorkspaceAddress
from backstay.model.codec import check_body
from backstay.model.content import Attachment, Json, ToolCall, ToolResult
from backstay.model.failure_reasons import raised_by, reason_of
from backstay.model.history.projection import readable
from backstay.model.ids import SessionId, TurnId, WindowId
from backstay.model.limits import READ_LIMIT
from backstay.model.message import Message
from backstay.model.search.results import SearchPage
from backstay.model.turn import Approval, OpenTurn, Steering
from backstay.runtime.async_store import AsyncStore
from backstay.runtime.attachments.attachment_reader import AttachmentReader
from backstay.runtime.attachments.tool_files import ToolFiles
from backstay.runtime.events.notifier import Notifier
from backstay.runtime.turns.agent_log import log_tool_error
from backstay.runtime.turns.ledger import AbandonedCalls, Ledger, LedgerEntry, OwnCall, RequestedCall
from backstay.runtime.turns.recorder import Recorder, TurnHasEnded
from backstay.runtime.turns.tool_runner import ToolRunner
from backstay.store import Store, commands

T = TypeVar("T")


class LiveTurn:
    """One running turn: the same object in all its tasks and threads.

    Properties do no I/O; the window is always current.
    """

    def __init__(
        self,
        recorder: Recorder,
        store: AsyncStore,
        notifier: Notifier,
        tool_runner: ToolRunner,
    ) -> None:
        self._recorder, self._store, self._notifier = recorder, store, notifier
        self._tool_runner, self._ledger, self._abandoned_calls = tool_runner, Ledger(), AbandonedCalls()
        self._opened: OpenTurn = recorder.opened
        self._calls = 0
        self._recorded: list[ToolCall | ToolResult] = []
        self._callers: set[asyncio.Task[object] | None] = set()
        self._children: set[asyncio.Task[object]] = set()
        self._history: tuple[Message, ...] = ()
        self._messages: tuple[Message, ...] | None = None
        self.began = recorder.opened.event
        self._earlier_output: tuple[Message, ...] = ()

    def set_history(self, messages: tuple[Message, ...], earlier_output: tuple[Message, ...], ledger: Ledger) -> None:
        """Set the history that the agent reads, and, for a resumed turn, its earlier output and calls."""
        self._history, self._messages, self._earlier_output, self._ledger = messages, None, earlier_output, ledger

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
        """The name of the agent that answers the turn."""
        return self._opened.agent

    @property
    def input(self) -> Message:
        return self._recorder.opened.input

    @property
    def history(self) -> tuple[Message, ...]:
        """The history as it is stored."""
        return self._history

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history, which was loaded before the agent started: the property does no I/O."""
        if self._messages is None:
            self._messages = readable(self._history)
        return self._messages

    @property
    def earlier_output(self) -> tuple[Message, ...]:
        return self._earlier_output

    @property
    def pending_calls(self) -> tuple[ToolCall, ...]:
        return self._ledger.pending()

    @property
    def window(self) -> WindowId:
        return self._recorder.opened.window

    @property
    def cancelled(self) -> bool:
        return self._recorder.cancel_requested

    async def steering(self) -> tuple[Steering, ...]:
        return await self._recorder.steering()

    async def workspace(self) -> str | None:
        spellings = await self._store.run(commands.addresses(self.session, owner=self.owner))
        addresses = map(Address.parse, spellings)
        paths = {one.path for one in addresses if isinstance(one, WorkspaceAddress) and one.host == self._store.host}
        return paths.pop() if len(paths) == 1 else None

    async def search(self, text: str, *, limit: int = 5) -> SearchPage:
        return await self._store.call(Store.search, text, owner=self.owner, limit=limit)

    async def read(self, attachment: Attachment, *, limit: int = READ_LIMIT) -> bytes:
        return await AttachmentReader(self._store, self.owner).read(attachment, limit)

    def read_pieces(self, attachment: Attachment) -> AsyncIterator[bytes]:
        return AttachmentReader(self._store, self.owner).pieces(attachment)

    async def wait_for_calls(self, seconds: float) -> int:
        """Wait, at most this long, until no task is inside `call` and no async tool runs.

        Returns:
            How many async tools still run, although they were cancelled.
        """
        callers = {task for task in self._callers if task is not None and not task.done()}
        if tasks := callers | self._children:
            await asyncio.wait(tasks, timeout=seconds)
        return len(self._children)

    async def call(
        self, tool: Tool, arguments: Mapping[str, Json], *, run_again: bool = False, id: str | None = None
    ) -> Json:
        # A call may come from a task that the agent started: the end of the turn waits for it as well.
        task = asyncio.current_task()
        self._callers.add(task)
        try:
            return await self._call(tool, self._checked_copy(tool, arguments), run_again=run_again, id=id)
        finally:
            self._callers.discard(task)

    def recorded(self, ids: Collection[str]) -> tuple[ToolCall | ToolResult, ...]:
        return tuple(body for body in self._recorded if body.id in ids)

    async def _call(self, tool: Tool, arguments: dict[str, Json], *, run_again: bool, id: str | None) -> Json:
        wanted = RequestedCall(tool, arguments)
        # The order decides what never runs twice: first a stored result, then an abandoned call of this turn, then a
        # repetition that is allowed. Only then is it a new call.
        result = self._ledger.take_result(wanted)
        if result is not None:
            return _replay(tool, result)
        own = self._abandoned_calls.take(wanted, idempotent=tool.idempotent)
        if own is None:
            earlier = await self._find_earlier(tool, wanted, run_again=run_again)
            own = self._record_call(tool, arguments, earlier, id)
        self._ledger.drop(own.call.id)
        if own.result is not None:
            return _replay(tool, own.result)
        try:
            return await self._run_call(tool, own)
        except ToolFailed:
            raise
        except BaseException:
            # Cancelled, or the store failed; the tool may have started. Keep the call, so that an equal one continues
            # it or is in doubt.
            self._abandoned_calls.add(own)
            raise

    async def _find_earlier(self, tool: Tool, wanted: RequestedCall, *, run_again: bool) -> LedgerEntry | None:
        """The earlier call that this one repeats, or None.

        Raises:
            MayHaveRun: An equal call may have run, and neither a person nor `run_again` allows another one.
        """
        earlier = self._ledger.take_repeatable(wanted, idempotent=tool.idempotent)
        if earlier is None and self._ledger.may_have_run(wanted):
            # A person may have decided since the turn began, in any process: read the ledger again.
            root = self._recorder.opened.root
            self._ledger.update(await self._store.run(commands.ledger(root, owner=self.owner)))
            earlier = self._ledger.take_repeatable(wanted, idempotent=tool.idempotent)
        in_doubt = self._ledger.may_have_run(wanted) or self._abandoned_calls.may_have_run(wanted)
        if earlier is None and in_doubt and not run_again:
            raise MayHaveRun(f"{tool.name} was interrupted before it returned a result, and may have run")
        return earlier

    def _record_call(
        self, tool: Tool, arguments: dict[str, Json], earlier: LedgerEntry | None, id: str | None
    ) -> OwnCall:
        """Record the intent to call. It is durable once the recorder has the call's key."""
        self._calls += 1
        if earlier is not None and earlier.made is not None:
            # A repetition has the arguments of the first call, letter for letter: decision and key are bound to them.
            arguments = dict(earlier.made.arguments)
        call_id = id or f"ledger-{self._calls}"
        call = ToolCall(call_id, tool.name, arguments, approval=tool.approval, idempotent=tool.idempotent)
        self._recorder.record_intent(call, None if earlier is None else earlier.call.ordinal)
        self._recorded.append(call)
        return OwnCall(call)

    async def _run_call(self, tool: Tool, own: OwnCall) -> Json:
        """Wait until the call is durable and approved, then run its tool."""
        # The intent is durable before the tool starts: after a crash the ledger shows that the tool may have run.
        key = await self._recorder.key_of(own.call.id)
        if tool.approval and not own.started and await self._wait_for_decision(own.call.id) == "denied":
            await self._store_result(own, ToolResult(own.call.id, "denied by a person", error=True))
            raise ToolFailed(f"{tool.name} was denied by a person", hint="Tell the person, or find another way.")
        return await self._run_tool(tool, own, key)

    def _checked_copy(self, tool: Tool, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """A checked copy of the arguments: the tool gets what was stored, even if the agent changes its own mapping."""
        if not isinstance(arguments, Mapping):
            raise InvalidPayload(
                f"the arguments of {tool.name} are of type {type(arguments).__name__}", hint="Pass a mapping."
            )
        call = check_body(ToolCall("call", tool.name, dict(arguments)), self._store.limits)
        return dict(call.arguments) if isinstance(call, ToolCall) else {}

    async def _run_tool(self, tool: Tool, own: OwnCall, key: str) -> Json:
        """Run the tool, and store its result durably before the agent sees it."""
        own.started = True
        try:
            returned = await self._until_over(self._observed_run(tool, own, key))
            output, files = await ToolFiles(self._store, self.owner).store(returned)
            await self._store_result(own, ToolResult(own.call.id, output, files=files))
        except (LeaseLost, StoreError, TurnHasEnded, asyncio.CancelledError):
            # The tool did not fail: its result is unknown, so the call stays in doubt.
            raise
        except Exception as error:
            raised = raised_by(error)
            if isinstance(raised, MayHaveRun):
                # The tool raised MayHaveRun: the call stays without a result, and in doubt.
                raise MayHaveRun(str(raised.args[0])) from error
            log_tool_error(self, tool.name, error)
            reason = reason_of(error, self.id, "it")
            if isinstance(error, Rejected):
                reason = f"it returned a value that is not JSON ({error})"
            await self._store_result(own, ToolResult(own.call.id, reason, error=True))
            failed = ToolFailed(f"{tool.name} failed: {reason}")
            failed.logged = True
            raise failed from error
        return output

    async def _observed_run(self, tool: Tool, own: OwnCall, key: str) -> object:
        observer = self._store.observer
        observer.tool_started(self._recorder.opened, own.call)
        try:
            return await self._tool_runner.run(tool, own.call.arguments, key)
        finally:
            observer.tool_ended(self._recorder.opened, own.call)

    async def _store_result(self, own: OwnCall, result: ToolResult) -> None:
        # The agent may act on the result only when it is durable: otherwise a crash could make it run the tool again.
        self._recorder.enqueue_nowait(result)
        self._recorded.append(result)
        own.result = result
        await self._recorder.sync()

    async def _wait_for_decision(self, call: str) -> Approval:
        """Wait for a person's decision, or raise `TurnHasEnded` when the turn ends."""
        with self._notifier.subscribe(self.session, self.owner) as subscription, self._recorder.waiting_for_others():
            while True:
                # Take the cursor before the read: a decision during the read wakes the wait below.
                seen = subscription.head
                calls = await self._store.run(commands.calls(self.id, owner=self.owner))
                found = next(record.approval for record in calls if record.call == call)
                if found != "asked":
                    return found
                await self._until_over(subscription.wait_past(seen))

    async def _until_over(self, work: Coroutine[object, object, T]) -> T:
        """Wait for a coroutine, but not longer than the turn: it is cancelled when the turn ends."""
        task = asyncio.create_task(work, name=f"call of {self.id}")
        # The end of the turn waits for this task: after its cancellation a tool may still have to clean up.
        self._children.add(task)
        task.add_done_callback(self._forget)
        try:
            async with child_tasks() as start:
                over = start(self._recorder.over.wait(), f"end of {self.id}")
                await asyncio.wait({task, over}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise TurnHasEnded(f"{self.id} has ended")
            return task.result()
        finally:
            task.cancel()

    def _forget(self, task: "asyncio.Task[object]") -> None:
        self._children.discard(task)
        if not task.cancelled():
            task.exception()  # Retrieved, so that asyncio does not report a tool that raised after its turn had ended.


def _replay(tool: Tool, result: ToolResult) -> Json:
    """The result of an earlier call, returned or raised as it was then."""
    if result.error:
        raise ToolFailed(f"{tool.name} failed: {result.output}")
    return result.output
