"""The history as an agent reads it: a form that every provider accepts."""

from collections.abc import Iterable, Iterator

from backstay.model.content import Custom, Text, ToolCall, ToolResult
from backstay.model.ids import TurnId
from backstay.model.message import Message

INTERRUPTED = "interrupted: this call may or may not have run"
# The last part of a turn whose input a provider refused. It is a part of the window, so forks, exports and live agents
# agree on what agents read.
_REFUSED = "input_refused"
_NOTE = "[A message was left out here, because the model provider refused it. Tools that were called for it: {}.]"


def refusal_mark(code: str) -> Custom:
    """The part that ends a refused turn."""
    return Custom(_REFUSED, {"code": code})


def readable(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The same messages with every tool call answered exactly once, directly after the message with the call.

    A call without a result gets an error result. A result without its call, left by a compaction, is omitted. Turns
    that a provider refused are left out; if they called tools, a note names these. Nothing of this is stored.
    """
    return tuple(_paired(_without_refused(list(messages))))


def _without_refused(messages: list[Message]) -> list[Message]:
    refused = {message.turn for message in messages if message.turn is not None and _is_refused(message)}
    if not refused:
        return messages
    # The note stands where the turn began; `pop` gives it once.
    notes = {turn: _note(messages, turn) for turn in refused}
    shown = (message if message.turn not in refused else notes.pop(message.turn, None) for message in messages)
    return [message for message in shown if message is not None]


def _is_refused(message: Message) -> bool:
    return any(isinstance(part, Custom) and part.kind == _REFUSED for part in message.parts)


def _note(messages: list[Message], turn: TurnId) -> Message | None:
    """A message in place of a refused turn that called tools: they may have had effects."""
    own = [message for message in messages if message.turn == turn]
    names = dict.fromkeys(part.name for message in own for part in message.parts if isinstance(part, ToolCall))
    if not names:
        return None
    parts = (Text(_NOTE.format(", ".join(names))),)
    return Message(id=own[0].id, position=own[0].position, turn=turn, role="user", parts=parts, at=own[0].at)


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
    caller_message: Message | None = None
    for message in messages:
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        if message.role == "tool" and caller_message is not None:
            for result in results:
                found.setdefault(caller_message.id, {}).setdefault(result.id, result)
        else:
            caller_message = message if any(isinstance(part, ToolCall) for part in message.parts) else None
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
