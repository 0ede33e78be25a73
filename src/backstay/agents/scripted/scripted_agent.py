"""The scripted agent: answers deterministically without a model, for demonstrations, documentation and tests."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import assert_never

from backstay.agents.directions import directions_of
from backstay.agents.port import AgentTurn
from backstay.agents.scripted.builtin_tools import calculator, clock, search_in
from backstay.agents.scripted.demo_tools import Ledger, confirm, payment_into
from backstay.agents.scripted.earlier_output import EarlierOutput
from backstay.agents.scripted.literal_script import Script, ScriptLine
from backstay.agents.scripted.script_commands import (
    HELP,
    Command,
    Count,
    Crash,
    Echo,
    Fail,
    Help,
    Long,
    Pay,
    Slow,
    Think,
    Use,
    parse,
)
from backstay.agents.tools import MayHaveRun, Tool, ToolFailed
from backstay.errors import AgentFailed
from backstay.model.content import Body, Json, Text, Thought, ToolCall, ToolResult, Usage, attachments_in, text_of
from backstay.model.history.call_arguments import parse_arguments
from backstay.model.message import Message

Pause = Callable[[float], Awaitable[None]]
Bodies = AsyncGenerator[Body, None]

_MOST_ECHOED = 200
_LINE = 64
_CRASH_TEXT = "I am about to crash.\n"
_PIECE = re.compile(r"(?:\S+\s*){1,3}|\s+")


def _crash_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class ScriptedAgent:
    __doc__ = f"""Echoes its input and executes a few commands, one per line of the input:

{HELP}

Its tools are the clock, the calculator, a search of the owner's sessions, and those in `tools`. Tools that the client
declared are run by the client: the answer ends with the call, and the next turn reports the result.

Args:
    tools: Further tools.
    payments: The list or file that the demonstration tool `pay` writes to.
    allow_crash: Whether the command `crash` may kill this process.
    pause: Waits for a number of seconds; tests replace it.
    pace: Seconds between two pieces of an answer. The agent takes steering inputs there and reports them.
    slow: Seconds between two pieces of the command `slow`.
"""

    takes = frozenset({"instructions", "tools", "tool_choice", "parallel_tool_calls", "temperature", "top_p"})

    def __init__(
        self,
        *,
        tools: Iterable[Tool] = (),
        payments: Ledger | None = None,
        allow_crash: bool = False,
        pause: Pause = asyncio.sleep,
        pace: float = 0.0,
        slow: float = 0.5,
    ) -> None:
        self._tools = {tool.name: tool for tool in (clock, calculator, confirm, *tools)}
        self._payments, self._allow_crash = payments, allow_crash
        self._pause, self._pace, self._slow = pause, pace, slow
        self._requested_calls = 0

    @staticmethod
    def script(lines: Iterable[ScriptLine]) -> Script:
        """Return an agent that plays these lines in every turn, whatever the input.

        Args:
            lines: The lines, as `Script` takes them.
        """
        return Script(lines)

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        """Execute the commands in the input of the turn, then report the usage, counted in words."""
        earlier, history = EarlierOutput(turn.earlier_output), _history(turn)
        read, written = sum(_count(message.text) for message in history), 0
        given, has_called = _given_back(turn, history), False
        read += _count(directions_of(turn.input.parts).instructions or "")
        received = [f"You gave me: {result}\n" for result in given] + _files_received(turn)
        for line in received:
            if new := earlier.without(Text(line)):
                yield new
        for command in () if received and not turn.input.text.strip() else parse(turn.input.text):
            if has_called and not _is_for_client(turn, command):
                break
            async with aclosing(self._follow(command, turn, Usage(read, written), earlier)) as bodies:
                async for body in bodies:
                    written += _count(body.text) if isinstance(body, Text | Thought) else 0
                    has_called = has_called or isinstance(body, ToolCall)
                    if new := earlier.without(body):
                        yield new
            if turn.cancelled:
                return
        yield Usage(input_tokens=read, output_tokens=written, model="scripted")

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""

    def _follow(self, command: Command, turn: AgentTurn, used: Usage, earlier: EarlierOutput) -> Bodies:
        match command:
            case Think(text):
                return self._think(turn, text)
            case Use() if _is_for_client(turn, command):
                return self._ask_client(turn, command)
            case Use(name, arguments):
                return self._use(turn, name, arguments)
            case Pay():
                return self._pay(turn, command)
            case Fail(reason):
                return self._fail(reason)
            case Crash():
                return self._crash(turn, earlier)
            case Slow():
                return self._send(turn, _texts_for(command, used), self._slow, earlier)
            case _:
                return self._send(turn, _texts_for(command, used), self._pace, earlier)

    async def _send(self, turn: AgentTurn, pieces: Iterable[str], wait: float, earlier: EarlierOutput) -> Bodies:
        """Yield the pieces; between two new ones, pause and take steering inputs."""
        for number, piece in enumerate(pieces):
            if earlier.contains(piece):
                yield Text(piece)
                continue
            if number and wait:
                await self._pause(wait)
            if turn.cancelled:
                return
            for steering in await turn.steering() if number else ():
                yield Text(f"\n(You said in between: “{text_of(steering.parts)}”)\n")
            yield Text(piece)

    async def _think(self, turn: AgentTurn, text: str) -> Bodies:
        for piece in _pieces(text):
            if turn.cancelled:
                return
            yield Thought(piece)
        yield Text("I have thought about it.\n")

    async def _use(self, turn: AgentTurn, name: str, arguments: dict[str, Json]) -> Bodies:
        tools = {"search": search_in(turn), **self._tools}
        if name in tools:
            yield Text(await _called(turn, tools[name], arguments))
        else:
            yield Text(f"I have no tool {name}; there are {', '.join(sorted(tools))}.\n")

    async def _ask_client(self, turn: AgentTurn, command: Use) -> Bodies:
        """Request a tool call from the client, with the arguments as they were written. The id is unique."""
        self._requested_calls += 1
        arguments: Json = command.arguments if command.text is None else parse_arguments(command.text)
        yield ToolCall(f"call_{turn.id[4:]}_{self._requested_calls}", command.tool, arguments, client=True)

    async def _pay(self, turn: AgentTurn, command: Pay) -> Bodies:
        if self._payments is None:
            yield Text("I have no ledger for payments; `backstay serve --demo` gives me one.\n")
        elif command.crash and not self._allow_crash:
            yield Text("I am not allowed to crash here, so I did not pay; `backstay serve --demo` allows it.\n")
        else:
            # A turn that resumes has crashed already: once is enough.
            crashes = command.crash and not turn.earlier_output
            tool = payment_into(self._payments, then=_crash_process) if crashes else payment_into(self._payments)
            yield Text(await _called(turn, tool, {"amount": command.amount}))

    async def _fail(self, reason: str) -> Bodies:
        yield Text("I am about to fail.\n")
        raise AgentFailed(reason)

    async def _crash(self, turn: AgentTurn, earlier: EarlierOutput) -> Bodies:
        """Kill this process after all output so far is stored: `turn.steering()` waits for that.

        A turn that resumes one that crashed here continues behind this command.
        """
        crashed = earlier.contains(_CRASH_TEXT)
        if not (self._allow_crash or crashed):
            yield Text("I am not allowed to crash here; `backstay serve --demo` allows it.\n")
            return
        yield Text(_CRASH_TEXT)
        if crashed:
            yield Text("The process that ran me crashed here. I continue from this point.\n")
            return
        await turn.steering()
        _crash_process()


def _is_for_client(turn: AgentTurn, command: Command) -> bool:
    """Whether a command calls a tool that the client declared."""
    declared = {tool.name for tool in directions_of(turn.input.parts).tools}
    return isinstance(command, Use) and command.tool in declared


def _history(turn: AgentTurn) -> tuple[Message, ...]:
    """Return the messages up to the input, also in a turn that resumes another."""
    output = {message.id for message in turn.earlier_output}
    return tuple(message for message in turn.messages if message.id not in output)


def _given_back(turn: AgentTurn, history: tuple[Message, ...]) -> list[Json]:
    """Return the results of the client's tools, if the turn has no other input."""
    before = () if turn.input.text else history[-2:-1]
    results = [part for message in before if message.role == "tool" for part in message.parts]
    return [part.output for part in results if isinstance(part, ToolResult)]


def _files_received(turn: AgentTurn) -> list[str]:
    """Return a line for each file of the input."""
    files = attachments_in(turn.input.parts)
    return [f"You sent me {file.name} ({file.media_type}, {file.size:,} bytes).\n" for file in files]


async def _called(turn: AgentTurn, tool: Tool, arguments: dict[str, Json]) -> str:
    try:
        return f"{tool.name}: {await turn.call(tool, arguments)}\n"
    except ToolFailed as error:
        return f"{tool.name} did not work: {error}\n"
    except MayHaveRun as error:
        return f"{tool.name} may have run already, so I do not repeat it: {error}\n"


def _texts_for(command: Echo | Slow | Long | Count | Help, used: Usage) -> Iterable[str]:
    """Return the answer to this command, in pieces."""
    match command:
        case Echo(text):
            return _pieces(_echo(text))
        case Slow(count):
            return (f"{number} of {count}. " for number in range(1, count + 1))
        case Long(kilobytes):
            return _filler(kilobytes)
        case Count():
            return _pieces(f"{used.input_tokens} words read, {used.output_tokens} said so far.\n")
        case Help():
            return HELP.splitlines(keepends=True)
    assert_never(command)


def _echo(text: str) -> str:
    shown = text if len(text) <= _MOST_ECHOED else text[:_MOST_ECHOED] + "…"
    return (
        "I am a scripted agent: no model is connected, and I always answer like this. "
        f"You said: “{shown}”. Say help to see what I can do.\n"
    )


def _pieces(text: str) -> list[str]:
    return _PIECE.findall(text)


def _filler(kilobytes: int) -> Iterator[str]:
    """Yield this many kilobytes of numbered lines, in pieces of half a kilobyte."""
    lines = 512 // _LINE
    for piece in range(kilobytes * 2):
        numbers = range(piece * lines, (piece + 1) * lines)
        yield "".join(f"{number:07d} ".ljust(_LINE - 1, ".") + "\n" for number in numbers)


def _count(text: str) -> int:
    return len(text.split())
