"""A literal script: an agent that says exactly what it was given, for tests."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from backstay.agents.port import AgentTurn
from backstay.model.content import Body, Text

Cue = Callable[[AgentTurn], Body | Awaitable[Body | None] | None]
Line = str | Body | Exception | Cue


class Script:
    """Plays the same lines in every turn.

    Text and bodies are said and exceptions raised; a function is called with the turn, awaited if need be, and what
    it returns is said unless it is None.
    """

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines = tuple(lines)

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        """Say the lines one by one until somebody cancels."""
        for line in self._lines:
            if turn.cancelled:
                return
            body = await _said(line, turn)
            if body is not None:
                yield body

    async def aclose(self) -> None:
        """Nothing is held."""


async def _said(line: Line, turn: AgentTurn) -> Body | None:
    if isinstance(line, Exception):
        raise line
    if isinstance(line, str):
        return Text(line)
    if not callable(line):
        return line
    answer = line(turn)
    return await answer if inspect.isawaitable(answer) else answer
