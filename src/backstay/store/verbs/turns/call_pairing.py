"""Pairing of tool calls and results: every result answers exactly one open call."""

from collections.abc import Callable, Iterable

from backstay.errors import InvalidPayload
from backstay.model.content import ToolCall, ToolResult
from backstay.model.message import Message, NewMessage


def check_pairing(messages: Iterable[NewMessage], open_calls: frozenset[str] | Callable[[], frozenset[str]]) -> None:
    """Raise if a result answers a call that is not open. `open_calls` are those before these messages.

    Calls without a result are valid: a writer may record the call now and its result later.
    """
    still_open: set[str] | None = None
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolResult) and still_open is None:
                still_open = set(open_calls() if callable(open_calls) else open_calls)
        still_open = after(message, still_open)


def after(message: Message | NewMessage, still_open: set[str] | None) -> set[str] | None:
    """The calls that are open after this message; None if the messages before are not known."""
    if message.role == "assistant":
        return _called(message)
    if message.role != "tool":
        # An agent reads results only directly after their call: a message in between closes the calls.
        return set()
    for part in message.parts:
        if isinstance(part, ToolResult) and still_open is not None:
            if part.id not in still_open:
                raise InvalidPayload(
                    f"tool result {part.id!r} does not answer an open call",
                    hint="Record the call first, and only one result for it, directly after it.",
                )
            still_open.discard(part.id)
    return still_open


def _called(message: Message | NewMessage) -> set[str]:
    called: set[str] = set()
    for part in message.parts:
        if isinstance(part, ToolCall):
            if part.id in called:
                raise InvalidPayload(f"tool call {part.id!r} appears twice", hint="Give every call its own id.")
            called.add(part.id)
        elif isinstance(part, ToolResult):
            if part.id not in called:
                raise InvalidPayload(f"tool result {part.id!r} does not answer a call of its message")
            called.discard(part.id)
    return called
