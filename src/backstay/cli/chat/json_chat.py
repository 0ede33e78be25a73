"""The chat with --json: each input line is a message or a decision, each output line an event of the session.

The next line is read when the turn of the line before has ended, or when a tool call needs approval.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Literal
from uuid import uuid4

import msgspec

from backstay.cli.chat.chat_io import PipeInput, TypedLine
from backstay.cli.chat.exchange import Exchange
from backstay.cli.output import screen
from backstay.cli.output.exit_status import ENDINGS, Exit
from backstay.concurrency.child_tasks import child_tasks
from backstay.errors import InvalidPayload, NotFound, NothingToDo
from backstay.model.event import ApprovalDecided, Event, ToolCalled, ToolReturned, TurnEnded, TurnFolded
from backstay.model.ids import TurnId
from backstay.model.session import SessionInfo
from backstay.model.turn import Completed, Interrupted, Outcome

_HINT = 'Write {"text": "…"} to send a message, or {"call": "…", "approved": true} to approve a tool call.'


class SendText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Send this message and wait for the answer."""

    text: str


class Decide(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Approve or deny the tool call with this id."""

    call: str
    approved: bool


class JsonChat:
    """A chat with a program, until its input has ended and all its turns have ended."""

    def __init__(self, exchange: Exchange, session: SessionInfo) -> None:
        self._exchange, self._session = exchange, session
        self._own_turns: list[TurnId] = []
        self._outcomes: dict[TurnId, Outcome] = {}
        self._undecided: dict[str, TurnId] = {}
        self._news = asyncio.Event()
        self._executing = asyncio.Lock()

    async def run(self, program: PipeInput) -> Exit:
        """Execute the program's input; return the status of its first turn that did not complete, if there is one."""
        lines: asyncio.Queue[str | None] = asyncio.Queue()
        async with child_tasks() as start:
            writer = start(self._write_events())
            execution = start(self._execute_all(lines, program))
            stop = start(_read_inputs(lines, program))
            await asyncio.wait([writer, execution, stop], return_when=asyncio.FIRST_COMPLETED)
            if execution.done():
                return execution.result()
            if writer.done():
                writer.result()
                raise NotFound(f"{self._session.id} was deleted", hint="--new creates another session.")
            if stop.result() == "exit":
                return self._exit_status() if self._is_answered() else Exit.INTERRUPTED
            # A second Ctrl-C exits without waiting for the cancellation.
            cancellation, again = start(self._cancel(execution)), start(_read_inputs(lines, program))
            await asyncio.wait([writer, cancellation, again], return_when=asyncio.FIRST_COMPLETED)
            return Exit.STOPPED

    # --- events -----------------------------------------------------------------------------------------------------

    async def _write_events(self) -> None:
        """Write every event from now on, from all clients, until the session is deleted."""
        async with aclosing(self._exchange.follow(self._session.id, self._session.last_event)) as events:
            async for one in events:
                if isinstance(one, Event):
                    # On a thread: a program that reads slowly must not block the agent in this process.
                    await asyncio.to_thread(screen.print_json, {"event": one})
                    self._note(one)
                    self._news.set()

    def _note(self, event: Event) -> None:
        match event.body:
            case ToolCalled(call=call) if call.approval and event.turn:
                self._undecided[call.id] = event.turn
            case ApprovalDecided(call=call_id, run_again=False):
                self._undecided.pop(call_id, None)
            case ToolReturned(result=result):
                self._undecided.pop(result.id, None)
            case TurnEnded(outcome=outcome) | TurnFolded(outcome=outcome) if event.turn and outcome is not None:
                self._outcomes[event.turn] = outcome
                if not (isinstance(outcome, Interrupted) and outcome.waiting_for_approval):
                    self._undecided = {call_id: turn for call_id, turn in self._undecided.items() if turn != event.turn}
            case _:
                pass

    # --- input ------------------------------------------------------------------------------------------------------

    async def _execute_all(self, lines: "asyncio.Queue[str | None]", program: PipeInput) -> Exit:
        """Execute the lines one after the other; at the end of the input, wait until all turns have ended."""
        while (line := await lines.get()) is not None:
            if line.strip():
                parsed = _parse(line)
                async with self._executing:
                    await self._execute(parsed)
                await self._wait_until(lambda: bool(self._undecided) or self._is_answered())
            program.resume()
        await self._wait_until(self._is_answered)
        return self._exit_status()

    async def _execute(self, parsed: SendText | Decide) -> None:
        match parsed:
            case SendText(text=text):
                key = uuid4().hex
                self._own_turns.append(
                    await self._exchange.send(self._session.id, text, request_id=key, if_busy="enqueue")
                )
            case Decide(call=call, approved=approved):
                if call not in self._undecided:
                    raise NothingToDo(
                        f"tool call {call!r} does not need approval",
                        hint="Calls that do have `approval` in their event.",
                    )
                await self._exchange.decide(self._undecided[call], call, approved=approved)
                self._undecided.pop(call, None)

    async def _cancel(self, execution: "asyncio.Task[Exit]") -> None:
        """Cancel all own turns that have not ended. The lock waits for a submission under way, to cancel it too."""
        async with self._executing:
            execution.cancel()
        for turn in self._own_turns:
            if turn not in self._outcomes:
                await self._exchange.cancel(turn)
        await self._wait_until(self._is_answered)

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._news.clear()
            await self._news.wait()

    def _is_answered(self) -> bool:
        return all(turn in self._outcomes for turn in self._own_turns)

    def _exit_status(self) -> Exit:
        outcomes = (self._outcomes[turn] for turn in self._own_turns)
        return next((ENDINGS[type(one)] for one in outcomes if not isinstance(one, Completed)), Exit.COMPLETED)


async def _read_inputs(lines: "asyncio.Queue[str | None]", program: PipeInput) -> Literal["interrupt", "exit"]:
    """Read the program's lines until a signal arrives; return which."""
    while True:
        user_input = await program.read_input()
        if user_input in ("interrupt", "exit"):
            return user_input
        lines.put_nowait(user_input.text if isinstance(user_input, TypedLine) else None)


def _parse(line: str) -> SendText | Decide:
    """Parse a line of the input."""
    try:
        value = msgspec.json.decode(line.encode(errors=PipeInput.UNREADABLE))
        if isinstance(value, dict) and "call" in value:
            return msgspec.convert(value, Decide)
        return msgspec.convert(value, SendText)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidPayload(f"invalid line of input: {error}", hint=_HINT) from error
