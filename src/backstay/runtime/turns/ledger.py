"""The ledger as a running turn reads it: earlier tool calls, also of the turns that this turn resumes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import msgspec

from backstay.agents.tools import Tool
from backstay.model.codec import arguments_hash
from backstay.model.content import Json, ToolCall, ToolResult
from backstay.model.ids import TurnId
from backstay.model.message import Message
from backstay.model.turn import ToolCallRecord
from backstay.runtime.turns.received_arguments import received_hash


class RequestedCall:
    """A requested call: tool name and hash of the arguments, so that the spelling of the JSON does not matter."""

    def __init__(self, tool: Tool, arguments: Mapping[str, Json]) -> None:
        self.tool, self.arguments, self.arguments_hash = tool, arguments, arguments_hash(arguments)

    @cached_property
    def received_hash(self) -> str:
        """The hash of the arguments that the function receives: a missing one equals its default."""
        return received_hash(self.tool, self.arguments)

    def is_like(self, made: ToolCall) -> bool:
        """Whether this call has the effect of another, whose arguments may be spelled differently."""
        return self.tool.name == made.name and self.received_hash == received_hash(self.tool, made.arguments)


class LedgerEntry(NamedTuple):
    """A call of the stored ledger, with its arguments and its result if the window has them."""

    call: ToolCallRecord
    made: ToolCall | None
    result: ToolResult | None

    def is_for(self, wanted: RequestedCall) -> bool:
        return (self.call.name, self.call.arguments_hash) == (wanted.tool.name, wanted.arguments_hash)

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
        # By ordinal: what the function received, computed at the first use.
        self._received: dict[int, str] = {}
        self._entries = [
            LedgerEntry(call, made.get((call.turn, call.call)), results.get((call.turn, call.call))) for call in calls
        ]

    def take_result(self, wanted: RequestedCall) -> ToolResult | None:
        """The stored result of an equal call that was not returned yet; None if there is none."""
        entry = self._take(wanted, lambda entry: entry.result is not None)
        return None if entry is None else entry.result

    def take_repeatable(self, wanted: RequestedCall, *, idempotent: bool) -> LedgerEntry | None:
        """An earlier equal call without a result that may be repeated; None if there is none."""
        return self._take(wanted, lambda entry: self._is_repeatable(entry, idempotent=idempotent))

    def may_have_run(self, wanted: RequestedCall) -> bool:
        """Whether an equal call may have run and has no permission to run again."""
        return any(not entry.settled and self._is_like(entry, wanted) for entry in self._entries)

    def pending(self) -> tuple[ToolCall, ...]:
        """Earlier calls that waited for a person, or that a person let run once more."""
        return tuple(
            entry.made
            for entry in self._entries
            if entry.made is not None and not entry.made.client and self._is_repeatable(entry, idempotent=False)
        )

    def update(self, calls: Iterable[ToolCallRecord]) -> None:
        """Update the entries with the decisions that people made since."""
        now = {call.ordinal: call for call in calls}
        self._entries = [entry._replace(call=now.get(entry.call.ordinal, entry.call)) for entry in self._entries]

    def drop(self, call: str) -> None:
        """Remove a call of this turn, because it continues."""
        self._entries = [entry for entry in self._entries if (entry.call.turn, entry.call.call) != (self._turn, call)]

    def _take(self, wanted: RequestedCall, matches: Callable[[LedgerEntry], bool]) -> LedgerEntry | None:
        """Remove and return an earlier call. One with the same spelling of the arguments goes first."""
        matching = [entry for entry in self._entries if matches(entry)]
        same = (entry for entry in matching if entry.is_for(wanted))
        found = next(chain(same, (entry for entry in matching if self._is_like(entry, wanted))), None)
        if found is not None:
            self._entries.remove(found)
        return found

    def _is_like(self, entry: LedgerEntry, wanted: RequestedCall) -> bool:
        """Whether the entry has the effect of the wanted call, however its arguments are spelled."""
        if entry.is_for(wanted):
            return True
        if entry.made is None or entry.call.name != wanted.tool.name:
            return False
        ordinal = entry.call.ordinal
        if ordinal not in self._received:
            self._received[ordinal] = received_hash(wanted.tool, entry.made.arguments)
        return self._received[ordinal] == wanted.received_hash

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
            if wanted.is_like(own.call) and (idempotent or not own.started or own.result is not None):
                self._calls.remove(own)
                return own
        return None

    def may_have_run(self, wanted: RequestedCall) -> bool:
        """Whether a call like this was started and may have run."""
        return any(wanted.is_like(own.call) for own in self._calls)
