"""The history as an agent reads it: a form that every provider accepts."""

from collections.abc import Iterable, Iterator

from backstay.model.content import ToolCall, ToolResult
from backstay.model.message import Message

INTERRUPTED = "interrupted: it is not known whether this call ran"


def readable(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The same messages with every tool call answered exactly once, directly after the message with the call.

    A call without a result gets an error result. A result without its call, left by a compaction, is omitted. Nothing
    of this is stored.
    """
    return tuple(_paired(list(messages)))


def _paired(messages: list[Message]) -> Iterator[Message]:
    answers = _answers(messages)
    for message in messages:
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        if calls:
            yield message
            yield from _answers_to(message, calls, answers.get(message.id, {}), within={part.id for part in results})
        elif not results:
            yield message


def _answers(messages: list[Message]) -> dict[str, dict[str, ToolResult]]:
    """For each message with tool calls, the results that follow it before any other message."""
    found: dict[str, dict[str, ToolResult]] = {}
    asking: Message | None = None
    for message in messages:
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        if message.role == "tool" and asking is not None:
            for result in results:
                found.setdefault(asking.id, {}).setdefault(result.id, result)
        else:
            asking = message if any(isinstance(part, ToolCall) for part in message.parts) else None
    return found


def _answers_to(
    message: Message, calls: list[ToolCall], answers: dict[str, ToolResult], within: set[str]
) -> Iterator[Message]:
    parts = tuple(
        answers.get(call.id, ToolResult(call.id, INTERRUPTED, error=True)) for call in calls if call.id not in within
    )
    if parts:
        yield Message(
            id=message.id, position=message.position, turn=message.turn, role="tool", parts=parts, at=message.at
        )
