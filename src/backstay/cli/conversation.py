"""A conversation as lines of text: who said what, which tools ran, and what came of it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

import msgspec

from backstay.cli import plain, screen
from backstay.model.content import Attachment, Custom, Json, Part, Text, Thought, ToolCall, ToolResult
from backstay.model.ids import TurnId
from backstay.model.message import Message
from backstay.model.turn import Call

SPEAKERS = {"user": "you", "assistant": "agent", "tool": "tool", "system": "system", "summary": "summary"}
_LONG = 2_000

# How many milliseconds a call of a turn took.
Durations = Mapping[tuple[TurnId | None, str], int]


def speaker(message: Message) -> str:
    """Who said it, and whether they were cut off."""
    return SPEAKERS[message.role] + (" (cut off)" if message.partial else "")


def durations(calls: Iterable[Call]) -> Durations:
    """How long each of these calls took, where that is known."""
    return {
        (call.turn, call.call): max(0, call.ended_at - call.started_at)
        for call in calls
        if call.started_at is not None and call.ended_at is not None
    }


def spoken(message: Message, took: Durations, *, whole: bool = False) -> Iterator[str]:
    """The lines of a message, harmless to any terminal; what tools gave is cut unless the `whole` is wanted."""
    for part in message.parts:
        ms = took.get((message.turn, part.id)) if isinstance(part, ToolResult) else None
        after = "" if ms is None else f"  ({screen.span(ms)})"
        yield from plain.lines(said(part, whole=whole) + after).splitlines() or [""]


def said(part: Part, *, whole: bool = False) -> str:
    """A part in words."""
    match part:
        case Text(text=text):
            return text
        case Thought(text=text):
            return f"(thinks) {text}"
        case ToolCall(name=name, arguments=arguments):
            return f"→ {name} {_cut(in_words(arguments), whole=whole)}"
        case ToolResult(output=output, error=error):
            return f"← {'failed: ' if error else ''}{_cut(in_words(output), whole=whole)}"
        case Attachment(name=name, media_type=kind, size=size):
            return f"[attachment {name}, {kind}, {size:,} bytes]"
        case Custom(kind=kind, data=data):
            return f"[{kind}] {_cut(in_words(data), whole=whole)}"
        case _:
            assert_never(part)


def in_words(value: Json) -> str:
    """A value that a tool took or gave: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def on_one_line(parts: Iterable[Part]) -> str:
    """Parts on one line, harmless."""
    return plain.one_line(" ".join(said(part) for part in parts))


def _cut(text: str, *, whole: bool) -> str:
    if whole or len(text) <= _LONG:
        return text
    return f"{text[:_LONG]}… ({len(text) - _LONG:,} more characters; --whole shows them)"
