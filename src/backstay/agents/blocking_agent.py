"""Agents that block: functions that run on a thread of their own and hand over one body at a time."""

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from backstay.agents.port import AgentTurn
from backstay.agents.tools import Tool
from backstay.concurrency.background_thread import BackgroundThread
from backstay.concurrency.loop_bridge import LoopBridge
from backstay.model.content import Attachment, Body, Json, ToolCall, ToolResult
from backstay.model.failure_reasons import Exited
from backstay.model.ids import SessionId, TurnId, WindowId
from backstay.model.limits import READ_LIMIT
from backstay.model.message import Message
from backstay.model.search.results import SearchPage
from backstay.model.turn import Steering


class BlockingAgentTurn:
    """A running turn, as an agent on a thread sees it: like `AgentTurn`, with blocking methods.

    Calling a method from the event loop itself raises `ConfigError`.
    """

    def __init__(self, turn: AgentTurn, loop: asyncio.AbstractEventLoop) -> None:
        self._turn, self._bridge = turn, LoopBridge(loop)

    @property
    def id(self) -> TurnId:
        return self._turn.id

    @property
    def session(self) -> SessionId:
        return self._turn.session

    @property
    def owner(self) -> str:
        return self._turn.owner

    @property
    def window(self) -> WindowId:
        return self._turn.window

    @property
    def input(self) -> Message:
        return self._turn.input

    @property
    def messages(self) -> tuple[Message, ...]:
        return self._turn.messages

    @property
    def earlier_output(self) -> tuple[Message, ...]:
        return self._turn.earlier_output

    @property
    def pending_calls(self) -> tuple[ToolCall, ...]:
        return self._turn.pending_calls

    @property
    def cancelled(self) -> bool:
        return self._turn.cancelled

    def steering(self) -> tuple[Steering, ...]:
        """Take the inputs that arrived for this turn since the last call."""
        return self._bridge.wait(self._turn.steering())

    def workspace(self) -> str | None:
        """Return the directory of the session, or None."""
        return self._bridge.wait(self._turn.workspace())

    def search(self, text: str, *, limit: int = 5) -> SearchPage:
        """Search the messages of all sessions of the owner.

        Args:
            text: The words to search for.
            limit: The highest number of hits.

        Returns:
            The hits, best first.
        """
        return self._bridge.wait(self._turn.search(text, limit=limit))

    def read(self, attachment: Attachment, *, limit: int = READ_LIMIT) -> bytes:
        """Read the bytes of an attachment; see `AgentTurn.read`.

        Args:
            attachment: The attachment, as it is in `parts`.
            limit: The most bytes that are read into memory.

        Returns:
            All bytes of the attachment.

        Raises:
            TooLarge: The attachment has more than `limit` bytes.
            NotFound: The owner has no such attachment.
            InvalidPayload: The value is not an attachment.
        """
        return self._bridge.wait(self._turn.read(attachment, limit=limit))

    def read_pieces(self, attachment: Attachment) -> Iterator[bytes]:
        """Read the bytes of an attachment piece by piece; see `AgentTurn.read_pieces`.

        Args:
            attachment: The attachment, as it is in `parts`.

        Yields:
            The pieces, in order.

        Raises:
            NotFound: The owner has no such attachment.
            InvalidPayload: The value is not an attachment.
        """
        pieces = self._turn.read_pieces(attachment)
        while (piece := self._bridge.wait(_next(pieces))) is not None:
            yield piece

    def call(
        self, tool: Tool, arguments: Mapping[str, Json], *, run_again: bool = False, id: str | None = None
    ) -> Any:  # Any: the JSON that the tool returns
        """Run a tool through the ledger; see `AgentTurn.call`.

        Args:
            tool: The tool to run.
            arguments: The arguments of its function.
            run_again: Run it under a new key although an earlier equal call may have run.
            id: The id of the call in the history; by default the runtime makes one.

        Returns:
            The result of the tool.

        Raises:
            MayHaveRun: An earlier equal call may have run.
            ToolFailed: The tool raised an exception, or a person denied the call.
        """
        return self._bridge.wait(self._turn.call(tool, arguments, run_again=run_again, id=id))

    def recorded(self, ids: Collection[str]) -> tuple[ToolCall | ToolResult, ...]:
        """Return calls of this turn, and their results, as later turns will read them; see `AgentTurn.recorded`.

        Args:
            ids: The ids that were passed to `call`.

        Returns:
            The calls and results, in the order of the history.
        """
        return self._turn.recorded(ids)


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


GeneratorFunction = Callable[[BlockingAgentTurn], Iterator[Body]]
Emit = Callable[[Body], None]
CallbackFunction = Callable[[BlockingAgentTurn, Emit], None]


class _Output(NamedTuple):
    """One body of output."""

    body: Body


class _End(NamedTuple):
    """The end of the function; `error` if it raised."""

    error: BaseException | None


class _OutputChannel:
    """A channel from the agent's threads to the event loop. `emit` returns once its body is stored.

    So the thread waits for the disk, and its later actions cannot change a body that it has handed over.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._queue: asyncio.Queue[_Output | _End] = asyncio.Queue()
        self._emitting = threading.Lock()
        self._stored = threading.Semaphore(0)
        self._waited_for = False
        self._stopped = False

    async def next(self) -> _Output | _End:
        """Return the next body, or the end. Asking for it confirms that the last body is stored."""
        if self._waited_for:
            self._stored.release()
        output = await self._queue.get()
        self._waited_for = True
        return output

    def end(self, error: BaseException) -> None:
        """Report, on the loop, the end of a thread that died and could not report it itself."""
        self._queue.put_nowait(_End(error))

    def stop(self) -> None:
        """Close the channel; a thread that waits in `emit`, or calls it again, is stopped there."""
        self._stopped = True
        self._stored.release()

    def emit(self, body: Body) -> None:
        """Hand over a body; return once it is stored."""
        with self._emitting:
            self._post(_Output(body))
            self._stored.acquire()
            self._end_if_stopped()

    def take_from(self, work: Callable[[], None]) -> None:
        """Run the agent function, on its own thread."""
        try:
            work()
            end = _End(None)
        except BaseException as error:  # noqa: BLE001  # `stream` raises it again on the loop
            end = _End(error)
        with suppress(SystemExit):
            self._post(end)

    def _post(self, output: _Output | _End) -> None:
        self._end_if_stopped()
        try:
            self.loop.call_soon_threadsafe(self._queue.put_nowait, output)
        except RuntimeError:
            self._stopped = True  # The loop is closed.
            self._end_if_stopped()

    def _end_if_stopped(self) -> None:
        if self._stopped:
            raise SystemExit  # It ends a thread silently, and `except Exception` in an agent does not catch it.


class BlockingAgent:
    """Runs a blocking function as an agent. Each body is taken before the function continues.

    A thread cannot be killed: if its turn ends first, it is stopped when it hands over its next body. A thread that
    never does stays behind as a daemon and is counted in `abandoned`; it can no longer write anything.
    """

    def __init__(self, function: CallbackFunction) -> None:
        self._function = function
        self._abandoned: list[BackgroundThread] = []

    @classmethod
    def of_generator(cls, function: GeneratorFunction) -> "BlockingAgent":
        """Return an agent that runs a generator function.

        Args:
            function: Takes a `BlockingAgentTurn` and yields the output.
        """

        def run(turn: BlockingAgentTurn, emit: Emit) -> None:
            for body in function(turn):
                emit(body)

        return cls(run)

    @property
    def abandoned(self) -> int:
        """The number of threads that still run although their turns have ended."""
        self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
        return len(self._abandoned)

    async def stream(self, turn: AgentTurn) -> AsyncGenerator[Body, None]:
        """Run the function on a thread and yield its output."""
        channel = _OutputChannel(asyncio.get_running_loop())
        run = partial(self._function, BlockingAgentTurn(turn, channel.loop), channel.emit)
        work = partial(contextvars.copy_context().run, channel.take_from, run)
        thread = BackgroundThread(work)
        watch = thread.watch(lambda: channel.end(thread.lost()))
        try:
            while isinstance(output := await channel.next(), _Output):
                yield output.body
            if output.error is not None:
                raise _raisable(output.error)
        finally:
            watch.cancel()
            channel.stop()
            self._abandoned.append(thread)

    async def aclose(self) -> None:
        """Do nothing: nothing is kept between turns."""


def _raisable(error: BaseException) -> Exception:
    """Return the error to raise on the loop. SystemExit, StopIteration and others with a meaning there are wrapped."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration | StopAsyncIteration):
        return error
    exited = Exited()
    exited.__cause__ = error
    return exited


def callback_agent(function: CallbackFunction) -> BlockingAgent:
    """Make an agent from a blocking function.

    Args:
        function: Called as `function(turn, emit)` on a thread; it calls `emit` with each body of its output.

    Returns:
        The agent.
    """
    return BlockingAgent(function)
