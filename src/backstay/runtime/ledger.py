"""The ledger as a resumed turn reads it: what became of the calls that were made before the interruption."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from backstay.model.codec import arguments_hash
from backstay.model.content import Json, ToolResult
from backstay.model.message import Message
from backstay.model.turn import Call


class Line(NamedTuple):
    """An earlier call, and its result if one was stored."""

    call: Call
    result: ToolResult | None


class Ledger:
    """Earlier calls in the order they were made. A turn that does the same again finds them one by one."""

    def __init__(self, calls: Sequence[Call] = (), messages: Iterable[Message] = ()) -> None:
        results = {
            (message.turn, part.id): part
            for message in messages
            for part in message.parts
            if isinstance(part, ToolResult)
        }
        self._lines = [Line(call, results.get((call.turn, call.call))) for call in calls]
        self._next = 0

    def recall(self, tool: str, arguments: Json) -> Line | None:
        """The earlier call that this one repeats. Once the turn takes another way, there is nothing to recall."""
        line = self._lines[self._next] if self._next < len(self._lines) else None
        if line is None or (line.call.name, line.call.arguments_hash) != (tool, arguments_hash(arguments)):
            self._next = len(self._lines)
            return None
        self._next += 1
        return line
