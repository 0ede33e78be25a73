"""A chat with a program: each line of its input is something to do, each line of the output an event of the story.

The next line is taken when what the one before began has ended, or asks for a word.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Literal, Protocol, TypeVar
from uuid import uuid4

import msgspec

from backstay.cli import screen
from backstay.cli.chat.exchange import Exchange
from backstay.cli.chat.stage import Line, PipeInput
from backstay.cli.exits import ENDINGS, Exit
from backstay.errors import InvalidPayload, NotFound, NothingToDo
from backstay.model.event import ApprovalDecided, Event, ToolCalled, ToolReturned, TurnEnded, TurnFolded
from backstay.model.ids import TurnId
from backstay.model.session import Session
from backstay.model.turn import Completed, Outcome

T = TypeVar("T")
_HINT = 'Write {"text": "…"} to say something, or {"call": "…", "approved": true} to let a tool run that asks.'


class _Start(Protocol):
    def __call__(self, doing: Coroutine[object, object, T]) -> "asyncio.Task[T]": ...


class Say(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Say this, and have it answered."""

    text: str


class Decide(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Let the tool call with this id run, or do not."""

    call: str
    approved: bool


class Machine:
    """A conversation in a session with a program, until that has said all it wants and all of it is answered."""

    def __init__(self, exchange: Exchange, session: Session) -> None:
        self._exchange, self._session = exchange, session
        self._own: list[TurnId] = []
        self._outcomes: dict[TurnId, Outcome] = {}
        self._asking: dict[str, TurnId] = {}
        self._news = asyncio.Event()
        self._speaking = asyncio.Lock()

    async def run(self, program: PipeInput) -> Exit:
        """Do as the program says; how the first of its turns ended that did not complete, if there is one."""
        lines: asyncio.Queue[str | None] = asyncio.Queue()
        async with _together() as start:
            telling = start(self._tell())
            doing = start(self._do_all(lines, program))
            stopping = start(_listen(lines, program))
            await asyncio.wait([telling, doing, stopping], return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                return doing.result()
            if telling.done():
                telling.result()
                raise NotFound(f"{self._session.id} was deleted", hint="--new begins another session.")
            if stopping.result() == "leave":
                return self._ending() if self._is_answered() else Exit.INTERRUPTED
            # Ctrl-C once more does not wait until all is cancelled.
            cancelling, again = start(self._cancel(doing)), start(_listen(lines, program))
            await asyncio.wait([telling, cancelling, again], return_when=asyncio.FIRST_COMPLETED)
            return Exit.STOPPED

    # --- the story --------------------------------------------------------------------------------------------------

    async def _tell(self) -> None:
        """Write every event from now on, whoever it comes from, until the session is deleted."""
        async with aclosing(self._exchange.follow(self._session.id, self._session.last_event)) as told:
            async for one in told:
                if isinstance(one, Event):
                    # On a thread: a program that reads slowly holds up what it reads, and not the agent.
                    await asyncio.to_thread(screen.say_json, {"event": one})
                    self._note(one)
                    self._news.set()

    def _note(self, event: Event) -> None:
        match event.body:
            case ToolCalled(call=call) if call.approval and event.turn:
                self._asking[call.id] = event.turn
            case ApprovalDecided(call=call_id):
                self._asking.pop(call_id, None)
            case ToolReturned(result=result):
                self._asking.pop(result.id, None)
            case TurnEnded(outcome=outcome) | TurnFolded(outcome=outcome) if event.turn and outcome is not None:
                self._outcomes[event.turn] = outcome
                self._asking = {call_id: turn for call_id, turn in self._asking.items() if turn != event.turn}
            case _:
                pass

    # --- what the program says --------------------------------------------------------------------------------------

    async def _do_all(self, lines: "asyncio.Queue[str | None]", program: PipeInput) -> Exit:
        """One after the other, to the end of the input; then until all of it is answered."""
        while (line := await lines.get()) is not None:
            if line.strip():
                order = _read(line)
                async with self._speaking:
                    await self._do(order)
                await self._until(lambda: bool(self._asking) or self._is_answered())
            program.go_on()
        await self._until(self._is_answered)
        return self._ending()

    async def _do(self, order: Say | Decide) -> None:
        match order:
            case Say(text=text):
                key = uuid4().hex
                self._own.append(await self._exchange.send(self._session.id, text, request_id=key, if_busy="enqueue"))
            case Decide(call=call, approved=approved):
                if call not in self._asking:
                    raise NothingToDo(f"no tool call {call!r} asks", hint="Those that do are told with `approval`.")
                await self._exchange.decide(self._asking[call], call, approved=approved)
                self._asking.pop(call, None)

    async def _cancel(self, doing: "asyncio.Task[Exit]") -> None:
        """Cancel all that was said and is not answered; what is just being said is waited for, to be cancelled too."""
        async with self._speaking:
            doing.cancel()
        for turn in self._own:
            if turn not in self._outcomes:
                await self._exchange.cancel(turn)
        await self._until(self._is_answered)

    async def _until(self, true: Callable[[], bool]) -> None:
        while not true():
            self._news.clear()
            await self._news.wait()

    def _is_answered(self) -> bool:
        return all(turn in self._outcomes for turn in self._own)

    def _ending(self) -> Exit:
        outcomes = (self._outcomes[turn] for turn in self._own)
        return next((ENDINGS[type(one)] for one in outcomes if not isinstance(one, Completed)), Exit.COMPLETED)


async def _listen(lines: "asyncio.Queue[str | None]", program: PipeInput) -> Literal["interrupt", "leave"]:
    """Take what the program says, line by line, until a signal comes; which."""
    while True:
        heard = await program.hear()
        if heard in ("interrupt", "leave"):
            return heard
        lines.put_nowait(heard.text if isinstance(heard, Line) else None)


def _read(line: str) -> Say | Decide:
    """What a line says."""
    try:
        told = msgspec.json.decode(line.encode(errors=PipeInput.UNREADABLE))
        if isinstance(told, dict) and "call" in told:
            return msgspec.convert(told, Decide)
        return msgspec.convert(told, Say)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidPayload(f"a line of the input makes no sense: {error}", hint=_HINT) from error


@asynccontextmanager
async def _together() -> AsyncIterator[_Start]:
    """Tasks that are all over when the block is left, whatever became of one."""
    tasks: list[asyncio.Task[object]] = []

    def start(doing: Coroutine[object, object, T]) -> "asyncio.Task[T]":
        task = asyncio.create_task(doing)
        tasks.append(task)
        return task

    try:
        yield start
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
