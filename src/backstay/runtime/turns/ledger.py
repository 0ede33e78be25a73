"""The ledger as a running turn reads it: earlier tool calls, also of the turns that this turn resumes."""

import inspect
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from backstay.agents.tools import Tool
from backstay.model.codec import arguments_hash
from backstay.model.content import Json, ToolCall, ToolResult
from backstay.model.ids import TurnId
from backstay.model.message import Message
from backstay.model.turn import ToolCallRecord

# Defaults that arguments can be compared with.
_PLAIN = (str, int, bool, type(None))


class RequestedCall(NamedTuple):
    """A requested call: tool name and hash of the arguments, so that the spelling of the JSON does not matter."""

    tool: Tool
    arguments_hash: str
    # The hash of the arguments that the function receives: a missing argument equals its default.
    effective_hash: str

    @classmethod
    def of(cls, tool: Tool, arguments: Json) -> "RequestedCall":
        return cls(tool, arguments_hash(arguments), _effective_hash(tool, arguments))

    def is_like(self, arguments: Json) -> bool:
        """Whether a call of the same tool with these arguments has the same effect."""
        return _effective_hash(self.tool, arguments) == self.effective_hash


class LedgerEntry(NamedTuple):
    """A call of the stored ledger, with its arguments and its result if the window has them."""

    call: ToolCallRecord
    made: ToolCall | None
    result: ToolResult | None

    def is_for(self, wanted: RequestedCall) -> bool:
        return (self.call.name, self.call.arguments_hash) == (wanted.tool.name, wanted.arguments_hash)

    def is_respelled(self, wanted: RequestedCall) -> bool:
        """Whether it may have had the effect of the wanted call, whose arguments are spelled differently."""
        if self.call.effect != "unknown" or self.made is None or self.call.name != wanted.tool.name:
            return False
        return not wanted.tool.idempotent and wanted.is_like(self.made.arguments)

    @property
    def settled(self) -> bool:
        """Whether a person allowed the call to run again and it was repeated.

        The entry of the repetition has its result.
        """
        return self.call.effect == "unknown" and self.call.run_again == "used"


class Ledger:
    """Earlier calls, found by tool and arguments. The order in which the agent repeats them does not matter.

    A stored result is returned once. A call that may have run stays in the ledger; while it is there, every equal call
    is in doubt.
    """

    def __init__(
        self, calls: Sequence[ToolCallRecord] = (), messages: Sequence[Message] = (), *, turn: TurnId | None = None
    ) -> None:
        results = {
            (message.turn, part.id): part
            for message in messages
            for part in message.parts
            if isinstance(part, ToolResult)
        }
        made = {
            (message.turn, part.id): part
            for message in messages
            for part in message.parts
            if isinstance(part, ToolCall)
        }
        self._turn = turn
        self._entries = [
            LedgerEntry(call, made.get((call.turn, call.call)), results.get((call.turn, call.call))) for call in calls
        ]

    def take_result(self, wanted: RequestedCall) -> ToolResult | None:
        """The stored result of an equal call that was not returned yet; None if there is none."""
        for entry in self._entries:
            if entry.result is not None and entry.is_for(wanted):
                self._entries.remove(entry)
                return entry.result
        return None

    def take_repeatable(self, wanted: RequestedCall, *, idempotent: bool) -> ToolCallRecord | None:
        """An earlier equal call without a result that may be repeated; None if there is none."""
        for entry in self._entries:
            if entry.is_for(wanted) and self._is_repeatable(entry, idempotent=idempotent):
                self._entries.remove(entry)
                return entry.call
        return None

    def doubts(self, wanted: RequestedCall) -> bool:
        """Whether an equal call may have run and has no permission to run again."""
        return any(
            (entry.is_for(wanted) or entry.is_respelled(wanted)) and not entry.settled for entry in self._entries
        )

    def update(self, calls: Iterable[ToolCallRecord]) -> None:
        """Update the entries with the decisions that people made since."""
        now = {call.ordinal: call for call in calls}
        self._entries = [entry._replace(call=now.get(entry.call.ordinal, entry.call)) for entry in self._entries]

    def drop(self, call: str) -> None:
        """Remove a call of this turn, because it continues."""
        self._entries = [entry for entry in self._entries if (entry.call.turn, entry.call.call) != (self._turn, call)]

    def _is_repeatable(self, entry: LedgerEntry, *, idempotent: bool) -> bool:
        if entry.result is not None or entry.call.turn == self._turn:
            return False
        if entry.call.effect == "unknown":
            return not entry.settled and (idempotent or entry.call.run_again == "approved")
        # The call only waited for approval: calls that may have run were marked as unknown when their turn ended.
        return entry.call.effect == "called"


class OwnCall(msgspec.Struct):
    """A call made by this turn: whether its tool was started, and its result once there is one."""

    call: ToolCall
    wanted: RequestedCall
    started: bool = False
    result: ToolResult | None = None


class AbandonedCalls:
    """Calls of this turn whose agent stopped waiting before it had the result."""

    def __init__(self) -> None:
        self._calls: list[OwnCall] = []

    def add(self, own: OwnCall) -> None:
        self._calls.append(own)

    def take(self, wanted: RequestedCall, *, idempotent: bool) -> OwnCall | None:
        """A call that can continue: it has a result, was not started, or can be repeated with the same key."""
        for own in self._calls:
            if own.wanted == wanted and (idempotent or not own.started or own.result is not None):
                self._calls.remove(own)
                return own
        return None

    def doubts(self, wanted: RequestedCall) -> bool:
        """Whether a call like this was started and may have run."""
        return any(
            own.wanted == wanted
            or (not wanted.tool.idempotent and own.wanted.tool == wanted.tool and wanted.is_like(own.call.arguments))
            for own in self._calls
        )


def _effective_hash(tool: Tool, arguments: Json) -> str:
    """The hash of the arguments, completed with the defaults of missing ones as far as these are JSON."""
    try:
        parameters = inspect.signature(tool.function).parameters
    except (TypeError, ValueError):  # It is not a function, or one whose signature cannot be read.
        return arguments_hash(arguments)
    defaults = {name: one.default for name, one in parameters.items() if type(one.default) in _PLAIN}
    return arguments_hash(defaults | arguments if isinstance(arguments, dict) else arguments)
