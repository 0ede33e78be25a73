"""The prompt for an ACP agent. A program that has not seen the window receives all of it."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from backstay.agents.port import AgentTurn
from backstay.agents.provider.transcript import shown
from backstay.model.content import Json, ToolCall, ToolResult
from backstay.model.message import Message

_BEFORE = (
    "This is the stored conversation so far. It is finished: do not answer anything in it, and repeat no action of it. "
    "Lines that we added begin with a bracket; the messages are indented."
)
_ADDED = (
    "Meanwhile these messages were added to our conversation. Lines that we added begin with a bracket; the messages "
    "are indented."
)
_NOW = "[end of the earlier conversation; the new message of the person follows]"
_BEGUN = (
    "You had begun to answer this and were interrupted. Your text and your tool calls so far are below. A call without "
    "a known result may have run: check before you repeat it. Continue from there."
)
_LONGEST_OUTPUT = 4_000


def prompt_of(turn: AgentTurn, earlier: Sequence[Message], *, fresh: bool) -> list[str]:
    """Return the texts of a prompt: the messages that the agent has not seen, marked as such, then the input."""
    parts = [f"{_BEFORE if fresh else _ADDED}\n\n{as_text(earlier)}\n\n{_NOW}"] if earlier else []
    parts.append("\n".join(text for part in turn.input.parts if (text := shown(part))))
    if turn.earlier_output:
        parts.append(f"{_BEGUN}\n\n{as_text(turn.earlier_output)}")
    return parts


def before_input(turn: AgentTurn) -> tuple[Message, ...]:
    """Return the messages before the turn's input."""
    messages = turn.messages
    last = max((place for place, message in enumerate(messages) if message.id == turn.input.id), default=len(messages))
    return messages[:last]


def as_text(messages: Iterable[Message]) -> str:
    """Return a conversation as text. No message in it can imitate our own lines."""
    return "\n".join(line for message in messages for line in _lines(message))


def _lines(message: Message) -> Iterator[str]:
    headings = {"user": "the person wrote", "system": "an instruction", "summary": "a summary of the earlier messages"}
    for part in message.parts:
        match part:
            case ToolCall(name=name, arguments=arguments):
                yield from _quoted(f"you called {name}", _as_text(arguments))
            case ToolResult(output=output, error=error):
                yield from _quoted("it failed" if error else "it returned", _as_text(output))
            case _:
                if text := shown(part):
                    yield from _quoted(headings.get(message.role, "you wrote"), text)


def _quoted(head: str, text: str) -> Iterator[str]:
    yield f"[{head}]"
    yield from (f"    {line}" for line in text.splitlines())


def _as_text(value: Json) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST_OUTPUT else f"{text[:_LONGEST_OUTPUT]}… (cut off here)"
