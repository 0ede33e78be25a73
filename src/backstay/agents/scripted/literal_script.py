"""A script: an agent that plays given output, for tests."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from backstay.agents.port import AgentTurn
from backstay.model.content import Body, Text

Cue = Callable[[AgentTurn], Body | Awaitable[Body | None] | None]
ScriptLine = str | Body | Exception | Cue


class Script:
    """Plays the same lines in every turn.

    Args:
        lines: A text or body is sent as output. An exception is raised. A function is called with the turn and awaited
            if needed; its result is sent unless it is None.
    """

    def __init__(self, lines: Iterable[ScriptLine]) -> None:
        self._lines = tuple(lines)

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        """Play the lines one by one until the turn is cancelled."""
        for line in self._lines:
            if turn.cancelled:
                return
            body = await _output_of(line, turn)
            if body is not None:
                yield body

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""


async def _output_of(line: ScriptLine, turn: AgentTurn) -> Body | None:
    if isinstance(line, Exception):
        raise line
    if isinstance(line, str):
        return Text(line)
    if not callable(line):
        return line
    answer = line(turn)
    return await answer if inspect.isawaitable(answer) else answer
