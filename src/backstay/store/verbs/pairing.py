"""Pairing: every tool result answers exactly one call that is still open."""

from collections.abc import Callable, Iterable

from backstay.errors import InvalidPayload
from backstay.model.content import ToolCall, ToolResult
from backstay.model.message import Message, NewMessage


def check_pairing(said: Iterable[NewMessage], open_calls: frozenset[str] | Callable[[], frozenset[str]]) -> None:
    """Raise if a result answers no open call, or one that was answered. `open_calls` are those before these messages.

    Calls without a result are no error: a writer may record the call now and its result later.
    """
    still_open: set[str] | None = None
    for message in said:
        for part in message.parts:
            if isinstance(part, ToolResult) and still_open is None:
                still_open = set(open_calls() if callable(open_calls) else open_calls)
        still_open = after(message, still_open)


def after(message: Message | NewMessage, still_open: set[str] | None) -> set[str] | None:
    """The calls that are open after this message; None as long as nobody knows what came before."""
    if message.role == "assistant":
        return _called(message)
    if message.role != "tool":
        # Whoever reads the history is shown results only where nothing was said between them and their call.
        return set()
    for part in message.parts:
        if isinstance(part, ToolResult) and still_open is not None:
            if part.id not in still_open:
                raise InvalidPayload(
                    f"tool result {part.id!r} answers no open call",
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
                raise InvalidPayload(f"tool result {part.id!r} answers no call of its message")
            called.discard(part.id)
    return called
