"""The scripted agent: answers without any model, always in the same way, for demonstrations, documents and tests."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import assert_never

from backstay.agents.builtin_tools import calculator, clock, search_in
from backstay.agents.commands import (
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
from backstay.agents.demo_tools import Ledger, confirm, payment_into
from backstay.agents.directions import directions_of
from backstay.agents.port import AgentTurn
from backstay.agents.script import Line, Script
from backstay.agents.tools import MayHaveRun, Tool, ToolFailed
from backstay.errors import AgentFailed
from backstay.model.content import Body, Json, Text, Thought, ToolCall, ToolResult, Usage, text_of

Pause = Callable[[float], Awaitable[None]]
Words = AsyncGenerator[Body, None]

_MOST_ECHOED = 200
_LINE = 64
_PIECE = re.compile(r"(?:\S+\s*){1,3}|\s+")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class ScriptedAgent:
    __doc__ = f"""Repeats what it is told and follows a few commands, one per line of the person's text:

{HELP}

Tools are the clock, the calculator, a search of the person's own sessions, and those given. Payments go to
`payments`, a list or file. Between two pieces of an answer it waits `pace` seconds, or `slow` ones when asked to be
slow, by calling `pause`; then it asks for steering, and says so when there was some. A tool that the client declared is
left to the client: the answer ends there, and what the client sends back is told in the next.
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
        self._wishes = 0

    @staticmethod
    def script(lines: Iterable[Line]) -> Script:
        """An agent that plays these lines, and looks at no text."""
        return Script(lines)

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        """Follow the commands of the turn's input, then report what was read and said, counted in words."""
        read, said = sum(_count(message.text) for message in turn.messages), 0
        given, asked = _given_back(turn), False
        read += _count(directions_of(turn.input.parts).instructions or "")
        for told in given:
            yield Text(f"You gave me: {told}\n")
        for command in () if given else parse(turn.input.text):
            if asked and not _is_for_client(turn, command):
                break
            async with aclosing(self._follow(command, turn, Usage(read, said))) as bodies:
                async for body in bodies:
                    said += _count(body.text) if isinstance(body, Text | Thought) else 0
                    asked = asked or isinstance(body, ToolCall)
                    yield body
            if turn.cancelled:
                return
        yield Usage(input_tokens=read, output_tokens=said, model="scripted")

    async def aclose(self) -> None:
        """Nothing is held."""

    def _follow(self, command: Command, turn: AgentTurn, used: Usage) -> Words:
        match command:
            case Think(text):
                return self._think(turn, text)
            case Use(name, arguments) if _is_for_client(turn, command):
                return self._ask_client(turn, name, arguments)
            case Use(name, arguments):
                return self._use(turn, name, arguments)
            case Pay():
                return self._pay(turn, command)
            case Fail(reason):
                return self._fail(reason)
            case Crash():
                return self._crash(turn)
            case Slow():
                return self._say(turn, _speech(command, used), self._slow)
            case _:
                return self._say(turn, _speech(command, used), self._pace)

    async def _say(self, turn: AgentTurn, pieces: Iterable[str], wait: float) -> Words:
        """Say the pieces, with a pause and an ear between each two."""
        for number, piece in enumerate(pieces):
            if number and wait:
                await self._pause(wait)
            if turn.cancelled:
                return
            for steering in await turn.steering() if number else ():
                yield Text(f"\n(You said in between: “{text_of(steering.parts)}”)\n")
            yield Text(piece)

    async def _think(self, turn: AgentTurn, text: str) -> Words:
        for piece in _pieces(text):
            if turn.cancelled:
                return
            yield Thought(piece)
        yield Text("I have thought about it.\n")

    async def _use(self, turn: AgentTurn, name: str, arguments: dict[str, Json]) -> Words:
        tools = {"search": search_in(turn), **self._tools}
        if name in tools:
            yield Text(await _called(turn, tools[name], arguments))
        else:
            yield Text(f"I have no tool {name}; there are {', '.join(sorted(tools))}.\n")

    async def _ask_client(self, turn: AgentTurn, name: str, arguments: dict[str, Json]) -> Words:
        """Wish for a tool that the client runs. The id is one that no other turn gives."""
        self._wishes += 1
        yield ToolCall(f"call_{turn.id[4:]}_{self._wishes}", name, arguments, client=True)

    async def _pay(self, turn: AgentTurn, command: Pay) -> Words:
        if self._payments is None:
            yield Text("I was given no place to pay into; `backstay serve --demo` gives me one.\n")
        elif command.crash and not self._allow_crash:
            yield Text("I am not allowed to crash here, so I did not pay; under `backstay serve --demo` I am.\n")
        else:
            tool = payment_into(self._payments, then=_die) if command.crash else payment_into(self._payments)
            yield Text(await _called(turn, tool, {"amount": command.amount}))

    async def _fail(self, reason: str) -> Words:
        yield Text("I am about to fail.\n")
        raise AgentFailed(reason)

    async def _crash(self, turn: AgentTurn) -> Words:
        """Die without a farewell, once everything said so far is stored: asking for steering waits for that."""
        if not self._allow_crash:
            yield Text("I am not allowed to crash here; under `backstay serve --demo` I am.\n")
            return
        yield Text("I am about to crash.\n")
        await turn.steering()
        _die()


def _is_for_client(turn: AgentTurn, command: Command) -> bool:
    """Whether a command calls a tool that the client declared."""
    declared = {tool.name for tool in directions_of(turn.input.parts).tools}
    return isinstance(command, Use) and command.tool in declared


def _given_back(turn: AgentTurn) -> list[Json]:
    """What the client's tools gave, if there is nothing else to answer."""
    before = () if turn.input.text else turn.messages[-2:-1]
    results = [part for message in before if message.role == "tool" for part in message.parts]
    return [part.output for part in results if isinstance(part, ToolResult)]


async def _called(turn: AgentTurn, tool: Tool, arguments: dict[str, Json]) -> str:
    try:
        return f"{tool.name}: {await turn.call(tool, arguments)}\n"
    except ToolFailed as error:
        return f"{tool.name} did not work: {error}\n"
    except MayHaveRun as error:
        return f"{tool.name} may have run already, so I do not repeat it: {error}\n"


def _speech(command: Echo | Slow | Long | Count | Help, used: Usage) -> Iterable[str]:
    """What is said for this command, piece by piece."""
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
    """As many kilobytes of numbered lines, in pieces of half a kilobyte."""
    lines = 512 // _LINE
    for piece in range(kilobytes * 2):
        numbers = range(piece * lines, (piece + 1) * lines)
        yield "".join(f"{number:07d} ".ljust(_LINE - 1, ".") + "\n" for number in numbers)


def _count(text: str) -> int:
    return len(text.split())
