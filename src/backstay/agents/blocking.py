"""Agents that block: generator functions that run on a thread of their own, one body at a time."""

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from backstay.agents.port import AgentTurn
from backstay.agents.tools import Tool
from backstay.model.content import Body, Json
from backstay.model.ids import SessionId, TurnId, WindowId
from backstay.model.message import Message
from backstay.model.turn import Steering

T = TypeVar("T")


class BlockingTurn:
    """A turn as an agent on a thread sees it: the same, but it waits instead of awaiting."""

    def __init__(self, turn: AgentTurn, loop: asyncio.AbstractEventLoop) -> None:
        self._turn, self._loop = turn, loop

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
    def cancelled(self) -> bool:
        return self._turn.cancelled

    def steering(self) -> tuple[Steering, ...]:
        """Inputs that arrived for this turn since it last asked."""
        return self._wait(self._turn.steering())

    def call(self, tool: Tool, arguments: Mapping[str, Json]) -> Any:  # Any: whatever JSON the tool returns
        """Run a tool through the ledger."""
        return self._wait(self._turn.call(tool, arguments))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class _Stopped(BaseException):
    """Raised on the agent's thread when nobody listens any more; not an Exception, so that agents let it pass."""


class _Words:
    """The way from the agent's thread to the loop: one word at a time, so that the thread waits for the disk."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._queue: asyncio.Queue[Body | BaseException | None] = asyncio.Queue(maxsize=1)
        self._stopped = threading.Event()

    async def next(self) -> Body | BaseException | None:
        """The next word, the error that ended the agent, or None at its end."""
        return await self._queue.get()

    def stop(self) -> None:
        """Nobody listens any more; a thread that waits to be heard is let go and finds out at its next word."""
        self._stopped.set()
        while not self._queue.empty():
            self._queue.get_nowait()

    def take_from(self, function: Callable[[BlockingTurn], Iterator[Body]], turn: BlockingTurn) -> None:
        """Run the agent; on its own thread."""
        try:
            for body in function(turn):
                self._say(body)
            self._say(None)
        except _Stopped:
            return
        except BaseException as error:  # noqa: BLE001  # it is raised again where the turn is judged
            if not self._stopped.is_set():
                self._say(error)

    def _say(self, word: Body | BaseException | None) -> None:
        if self._stopped.is_set():
            raise _Stopped
        asyncio.run_coroutine_threadsafe(self._queue.put(word), self.loop).result()


class BlockingAgent:
    """A generator function as an agent. Each body is taken before the next is asked for.

    A thread cannot be killed: when its turn is over before it is, it is stopped at its next word. One that never says
    another word stays behind as a daemon; its turn has ended, and nothing it does can be written any more.
    """

    def __init__(self, function: Callable[[BlockingTurn], Iterator[Body]]) -> None:
        self._function = function

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        """Run the generator on a thread and yield what it yields."""
        words = _Words(asyncio.get_running_loop())
        work = partial(words.take_from, self._function, BlockingTurn(turn, words.loop))
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(work,), name=f"backstay-agent-{turn.id}", daemon=True).start()
        try:
            while (word := await words.next()) is not None:
                if isinstance(word, BaseException):
                    raise word
                yield word
        finally:
            words.stop()

    async def aclose(self) -> None:
        """Nothing is held between turns."""
