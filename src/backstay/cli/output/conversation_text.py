"""A conversation as lines of text: messages, tool calls and their results."""

from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

import msgspec

from backstay.cli.output import safe_text, screen
from backstay.model.content import HIDDEN_KINDS, Attachment, Custom, Json, Part, Text, Thought, ToolCall, ToolResult
from backstay.model.ids import TurnId
from backstay.model.message import Message
from backstay.model.turn import Cancelled, Completed, Failed, Interrupted, Outcome, ToolCallRecord

AUTHORS = {"user": "you", "assistant": "agent", "tool": "tool", "system": "system", "summary": "summary"}
_LONG = 2_000

# The duration of each call of a turn, in milliseconds.
Durations = Mapping[tuple[TurnId | None, str], int]


def author(message: Message) -> str:
    """Return the role of the author, and whether the message was interrupted."""
    return AUTHORS[message.role] + (" (interrupted)" if message.partial else "")


def ending(outcome: Outcome) -> str:
    """Return how a turn ended, as the predicate of a sentence."""
    match outcome:
        case Completed():
            return "completed"
        case Failed():
            return "failed"
        case Cancelled():
            return "was cancelled"
        case Interrupted():
            return "was interrupted"


def durations(calls: Iterable[ToolCallRecord]) -> Durations:
    """Return the duration of each of these calls, if it is known."""
    return {
        (call.turn, call.call): max(0, call.ended_at - call.started_at)
        for call in calls
        if call.started_at is not None and call.ended_at is not None
    }


def message_lines(message: Message, took: Durations, *, whole: bool = False) -> Iterator[str]:
    """Yield the lines of a message without control characters; tool results are cut unless `whole` is set."""
    for part in shown_parts(message):
        ms = took.get((message.turn, part.id)) if isinstance(part, ToolResult) else None
        after = "" if ms is None else f"  ({screen.span(ms)})"
        yield from safe_text.lines(part_text(part, whole=whole) + after).splitlines() or [""]


def shown_parts(message: Message) -> list[Part]:
    """Return the parts that people are shown."""
    return [part for part in message.parts if not (isinstance(part, Custom) and part.kind in HIDDEN_KINDS)]


def part_text(part: Part, *, whole: bool = False) -> str:
    """Return a part as text."""
    match part:
        case Text(text=text):
            return text
        case Thought(text=text):
            return f"(thinking) {text}"
        case ToolCall(name=name, arguments=arguments):
            return f"→ {name} {_cut(as_text(arguments), whole=whole)}"
        case ToolResult(output=output, error=error, files=files):
            named = "".join(f" {part_text(file)}" for file in files)
            return f"← {'failed: ' if error else ''}{_cut(as_text(output), whole=whole)}{named}"
        case Attachment(name=name, media_type=kind, size=size):
            return f"[attachment {name}, {kind}, {size:,} bytes]"
        case Custom(kind=kind, data=data):
            return f"[{kind}] {_cut(as_text(data), whole=whole)}"
        case _:
            assert_never(part)


def as_text(value: Json) -> str:
    """Return an argument or result of a tool: text as it is, all else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def on_one_line(parts: Iterable[Part]) -> str:
    """Return parts on one line, without control characters."""
    return safe_text.one_line(" ".join(part_text(part) for part in parts))


def _cut(text: str, *, whole: bool) -> str:
    if whole or len(text) <= _LONG:
        return text
    return f"{text[:_LONG]}… ({len(text) - _LONG:,} more characters; --whole shows them)"
