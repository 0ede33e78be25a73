"""An agent that a test in another process directs step by step."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

from backstay import Text, Thought
from backstay.agents.port import AgentTurn
from backstay.agents.tools import MayHaveRun, Tool, ToolFailed
from backstay.model.content import Body, Json, text_of
from tests.runtime_processes.child_pipe import ChildPipe


class DirectedAgent:
    """Reports its call, then follows orders, by the text of its turn's input, until `end`."""

    def __init__(self, line: ChildPipe, *, payments: Path | None = None, idempotent: bool = False) -> None:
        self._line = line
        till = Till(line, payments)
        self._tools = {
            "look": Tool(name="look", function=till.look),
            "pay": Tool(name="pay", function=till.pay, idempotent=idempotent),
            "wipe": Tool(name="wipe", function=till.look, approval=True),
            "stick": Tool(name="stick", function=till.stick),
        }

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        me = turn.input.text
        self._line.report("speaking", me, [(message.role, message.text) for message in turn.messages])
        while (order := await self._line.next_order(me)) != ("end",):
            match order:
                case ("say", str(text)):
                    yield Text(text)
                case ("think", str(text)):
                    yield Thought(text)
                case ("call", str(tool), arguments):
                    self._line.report(me, "called", *await self._call(turn, tool, arguments))
                case ("steering",):
                    self._line.report(me, "took", [text_of(one.parts) for one in await turn.steering()])
                case ("recall",):
                    self._line.report(me, "reads", [(message.role, message.parts) for message in turn.messages])
                case ("fail", str(reason)):
                    raise RuntimeError(reason)
                case ("resist",):
                    await self._resist(me)
                case _:
                    raise ValueError(f"{order} is no order")
            self._line.report(me, "did", order[0])

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""

    async def _call(self, turn: AgentTurn, tool: str, arguments: dict[str, Json]) -> tuple[str, Json]:
        try:
            return "returned", await turn.call(self._tools[tool], arguments)
        except (MayHaveRun, ToolFailed) as error:
            return type(error).__name__, str(error)

    async def _resist(self, me: str) -> None:
        """Wait despite cancellation, as badly written agents do, until the pipe releases it."""
        waiting = asyncio.ensure_future(self._line.next_order(f"{me}, resisting"))
        self._line.report(me, "resists")
        while not waiting.done():
            try:
                await asyncio.shield(waiting)
            except asyncio.CancelledError:
                self._line.report(me, "resisted")


class Till:
    """Tools with an effect that outlives the process, if there is a file for it."""

    def __init__(self, line: ChildPipe, payments: Path | None) -> None:
        self._line, self._payments = line, payments

    async def pay(self, amount: int, key: str) -> str:
        """Pay, then wait for the test to let the call return."""
        assert self._payments is not None, "somebody must be paid"
        with self._payments.open("a") as file:
            file.write(f"{key}\n")
        self._line.report("inside", "pay", key)
        await self._line.next_order("pay")
        return f"paid {amount}"

    async def look(self, at: str, key: str) -> str:
        """Look at something, then wait for the test to let the call return."""
        self._line.report("inside", "look", key)
        await self._line.next_order("look")
        return f"looked at {at}"

    def stick(self) -> None:
        """Block a thread for ever."""
        self._line.report("inside", "stick")
        threading.Event().wait()
