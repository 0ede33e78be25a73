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

    @property
    def never_ran(self) -> bool:
        """Whether it only waited for a person's word: what may have run was marked so when its turn ended."""
        return self.call.effect == "called"


class Ledger:
    """Earlier calls that a turn may make again. Each is found once, by its tool and arguments, in whatever order."""

    def __init__(self, calls: Sequence[Call] = (), messages: Iterable[Message] = ()) -> None:
        results = {
            (message.turn, part.id): part
            for message in messages
            for part in message.parts
            if isinstance(part, ToolResult)
        }
        self._lines = [Line(call, results.get((call.turn, call.call))) for call in calls]

    def recall(self, tool: str, arguments: Json) -> Line | None:
        """The earlier call that this one repeats, if there is one that was not repeated yet."""
        wanted = (tool, arguments_hash(arguments))
        for line in self._lines:
            if (line.call.name, line.call.arguments_hash) == wanted:
                self._lines.remove(line)
                return line
        return None
