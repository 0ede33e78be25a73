"""Agents that block: generator functions that run on a thread of their own, one body at a time."""

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from backstay.agents.bridge import Bridge
from backstay.agents.port import AgentTurn
from backstay.agents.tools import Tool
from backstay.errors import AgentFailed
from backstay.model.content import Body, Json
from backstay.model.ids import SessionId, TurnId, WindowId
from backstay.model.message import Message
from backstay.model.reasons import reason_of
from backstay.model.search import SearchPage
from backstay.model.turn import Steering


class BlockingTurn:
    """A turn as an agent on a thread sees it: the same, but it waits instead of awaiting."""

    def __init__(self, turn: AgentTurn, loop: asyncio.AbstractEventLoop) -> None:
        self._turn, self._bridge = turn, Bridge(loop)

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
    def said(self) -> tuple[Message, ...]:
        return self._turn.said

    @property
    def cancelled(self) -> bool:
        return self._turn.cancelled

    def steering(self) -> tuple[Steering, ...]:
        """Inputs that arrived for this turn since it last asked."""
        return self._bridge.wait(self._turn.steering())

    def workspace(self) -> str | None:
        """The directory that the session is about."""
        return self._bridge.wait(self._turn.workspace())

    def search(self, text: str, *, limit: int = 5) -> SearchPage:
        """Messages of the person's own sessions that match, best first."""
        return self._bridge.wait(self._turn.search(text, limit=limit))

    def call(self, tool: Tool, arguments: Mapping[str, Json]) -> Any:  # Any: whatever JSON the tool returns
        """Run a tool through the ledger."""
        return self._bridge.wait(self._turn.call(tool, arguments))


GeneratorFunction = Callable[[BlockingTurn], Iterator[Body]]
Say = Callable[[Body], None]
CallbackFunction = Callable[[BlockingTurn, Say], None]


class _Word(NamedTuple):
    """Something the agent said."""

    body: Body


class _End(NamedTuple):
    """The agent has ended, by itself or by this error."""

    error: BaseException | None


class _Words:
    """The way from the agent's threads to the loop: whoever said something goes on once it is kept.

    So a thread waits for the disk, and what it said is not changed by what it does next.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._said: asyncio.Queue[_Word | _End] = asyncio.Queue()
        self._speaking = threading.Lock()
        self._kept = threading.Semaphore(0)
        self._waited_for = False
        self._stopped = False

    async def next(self) -> _Word | _End:
        """The next word, or the end. To ask for it says that the last one is kept."""
        if self._waited_for:
            self._kept.release()
        word = await self._said.get()
        self._waited_for = True
        return word

    def stop(self) -> None:
        """Nobody listens any more; a thread that waits to be heard, or says another word, is told so."""
        self._stopped = True
        self._kept.release()

    def say(self, body: Body) -> None:
        """Say something; returns once it is kept."""
        with self._speaking:
            self._post(_Word(body))
            self._kept.acquire()
            self._end_if_stopped()

    def take_from(self, work: Callable[[], None]) -> None:
        """Run the agent; on its own thread."""
        try:
            work()
            end = _End(None)
        except BaseException as error:  # noqa: BLE001  # it is raised again where the turn is judged
            end = _End(error)
        with suppress(SystemExit):
            self._post(end)

    def _post(self, word: _Word | _End) -> None:
        self._end_if_stopped()
        try:
            self.loop.call_soon_threadsafe(self._said.put_nowait, word)
        except RuntimeError:
            self._stopped = True  # The loop is closed.
            self._end_if_stopped()

    def _end_if_stopped(self) -> None:
        if self._stopped:
            raise SystemExit  # It ends a thread, silently; agents that catch every Exception let it pass.


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
                raise _told(word.error)
        finally:
            words.stop()
            self._left.append(thread)

    async def aclose(self) -> None:
        """Nothing is held between turns."""


def _told(error: BaseException) -> Exception:
    """What the agent raised, as an error of its turn alone: on a thread nothing else means the loop, or the program."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration | StopAsyncIteration):
        return error
    failed = AgentFailed(reason_of(error))
    failed.__cause__ = error
    return failed


def callback_agent(function: CallbackFunction) -> BlockingAgent:
    """A blocking function `f(turn, say)` as an agent: it calls `say` with each thing it has to say."""
    return BlockingAgent(function)
