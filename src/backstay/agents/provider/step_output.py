"""The output of one model call, in the form in which the next turn will read it."""

from collections.abc import Iterable

import msgspec

from backstay.model.content import Body, Custom, Json, ToolCall, ToolResult
from backstay.model.event import EventBody, event_of
from backstay.model.history.projection import readable
from backstay.model.history.turn_messages import messages_of
from backstay.model.ids import MessageId, TurnId
from backstay.model.message import Message

_REPEATED = "repeated_call"


class _RepeatedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was not made: an equal one has a result, or may have run."""

    id: str
    name: str
    arguments: Json
    output: Json
    error: bool


class StepOutput:
    """The output of one step. It is folded as the store folds it, so the running turn and later turns agree."""

    def __init__(self) -> None:
        self._events: list[EventBody] = []

    def add(self, body: Body) -> Body:
        """Add a body and return it."""
        self._events.append(event_of(body))
        return body

    def extend(self, bodies: Iterable[Body]) -> None:
        """Add bodies."""
        for body in bodies:
            self.add(body)

    def messages(self, turn: TurnId) -> tuple[Message, ...]:
        """Return the output as messages of this turn."""
        return readable(
            Message(id=MessageId(f"step {place}"), position=place, turn=turn, role=new.role, parts=new.parts, at=0)
            for place, new in enumerate(messages_of(self._events, partial=False))
        )


def without_record(call: ToolCall, result: ToolResult) -> Custom:
    """Return a body for a call that the ledger answered without making it.

    The ledger must not have it as a call: that would count as one more call of the tool.
    """
    repeated = _RepeatedCall(
        id=call.id, name=call.name, arguments=call.arguments, output=result.output, error=result.error
    )
    return Custom(_REPEATED, msgspec.to_builtins(repeated))


def repeated_call(part: Custom) -> tuple[ToolCall, ToolResult] | None:
    """Return the call and the result of a body from `without_record`; None for any other part."""
    if part.kind != _REPEATED:
        return None
    try:
        found = msgspec.convert(part.data, _RepeatedCall)
    except msgspec.ValidationError:
        return None  # a custom part of the same kind that is not ours
    return ToolCall(found.id, found.name, found.arguments), ToolResult(found.id, found.output, found.error)
