"""Agents that block: generator functions that run on a thread of their own, one body at a time."""

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

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


GeneratorFunction = Callable[[BlockingTurn], Iterator[Body]]
Say = Callable[[Body], None]
CallbackFunction = Callable[[BlockingTurn, Say], None]


class _Stopped(BaseException):
    """Raised on the agent's thread when nobody listens any more; not an Exception, so that agents let it pass."""


class _Word(NamedTuple):
    """Something the agent said."""

    body: Body


class _End(NamedTuple):
    """The agent has ended, by itself or by this error."""

    error: BaseException | None


class _Words:
    """The way from the agent's thread to the loop: one word at a time, so that the thread waits for the disk."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._queue: asyncio.Queue[_Word | _End] = asyncio.Queue(maxsize=1)
        self._stopped = threading.Event()

    async def next(self) -> _Word | _End:
        """The next word, or the end."""
        return await self._queue.get()

    def stop(self) -> None:
        """Nobody listens any more; a thread that waits to be heard is let go and finds out at its next word."""
        self._stopped.set()
        while not self._queue.empty():
            self._queue.get_nowait()

    def say(self, body: Body) -> None:
        """Say something; returns once it was taken."""
        self._put(_Word(body))

    def take_from(self, work: Callable[[], None]) -> None:
        """Run the agent; on its own thread."""
        try:
            work()
            end = _End(None)
        except _Stopped:
            return
        except BaseException as error:  # noqa: BLE001  # it is raised again where the turn is judged
            end = _End(error)
        if not self._stopped.is_set():
            self._put(end)

    def _put(self, word: _Word | _End) -> None:
        if self._stopped.is_set():
            raise _Stopped
        asyncio.run_coroutine_threadsafe(self._queue.put(word), self.loop).result()


class BlockingAgent:
    """A function that blocks as an agent. Each body is taken before the next is asked for.

    A thread cannot be killed: when its turn is over before it is, it is stopped at its next word. One that never says
    another word stays behind as a daemon and is counted; nothing it does can be written any more.
    """

    def __init__(self, function: CallbackFunction) -> None:
        self._function = function
        self._left: list[threading.Thread] = []

    @classmethod
    def of_generator(cls, function: GeneratorFunction) -> "BlockingAgent":
        """A generator function as an agent."""

        def speak(turn: BlockingTurn, say: Say) -> None:
            for body in function(turn):
                say(body)

        return cls(speak)

    @property
    def abandoned(self) -> int:
        """How many of its threads still run although their turns are over."""
        self._left = [thread for thread in self._left if thread.is_alive()]
        return len(self._left)

    async def stream(self, turn: AgentTurn) -> AsyncGenerator[Body, None]:
        """Run the function on a thread and yield what it says."""
        words = _Words(asyncio.get_running_loop())
        speak = partial(self._function, BlockingTurn(turn, words.loop), words.say)
        work = partial(contextvars.copy_context().run, words.take_from, speak)
        thread = threading.Thread(target=work, name=f"backstay-agent-{turn.id}", daemon=True)
        thread.start()
        try:
            while isinstance(word := await words.next(), _Word):
                yield word.body
            if word.error is not None:
                raise word.error
        finally:
            words.stop()
            self._left.append(thread)

    async def aclose(self) -> None:
        """Nothing is held between turns."""


def callback_agent(function: CallbackFunction) -> BlockingAgent:
    """A blocking function `f(turn, say)` as an agent: it calls `say` with each thing it has to say."""
    return BlockingAgent(function)
