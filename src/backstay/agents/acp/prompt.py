"""The prompt: what the agent is told. The window is the truth; a process that has not heard it is told all of it."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from backstay.agents.port import AgentTurn
from backstay.agents.transcript import shown
from backstay.model.content import Json, ToolCall, ToolResult
from backstay.model.message import Message

_BEFORE = (
    "This is the conversation up to now, as it is kept. It is over and done: answer nothing in it and repeat nothing "
    "that was done in it. Lines of ours begin with a bracket; all that was said is indented."
)
_ADDED = "Meanwhile this was added to our conversation. Lines of ours begin with a bracket; what was said is indented."
_NOW = "[end of the earlier conversation; what the person says now follows]"
_BEGUN = (
    "You had begun to answer this and were interrupted. What you said and did so far is below. A call without a known "
    "result may have run: look before you repeat it. Go on from there."
)
_LONGEST_OUTPUT = 4_000


def prompt_of(turn: AgentTurn, earlier: Sequence[Message], *, fresh: bool) -> list[str]:
    """The texts of a prompt: what the agent has not heard yet, marked as such, then what the person says."""
    parts = [f"{_BEFORE if fresh else _ADDED}\n\n{told(earlier)}\n\n{_NOW}"] if earlier else []
    parts.append("\n".join(text for part in turn.input.parts if (text := shown(part))))
    if turn.said:
        parts.append(f"{_BEGUN}\n\n{told(turn.said)}")
    return parts


def before_input(turn: AgentTurn) -> tuple[Message, ...]:
    """The messages before the turn's input."""
    messages = turn.messages
    last = max((place for place, message in enumerate(messages) if message.id == turn.input.id), default=len(messages))
    return messages[:last]


def told(messages: Iterable[Message]) -> str:
    """A conversation as text. Whatever was said in it, it cannot be mistaken for our own lines."""
    return "\n".join(line for message in messages for line in _lines(message))


def _lines(message: Message) -> Iterator[str]:
    speaker = {"user": "the person said", "system": "an instruction", "summary": "a summary of what came before"}
    for part in message.parts:
        match part:
            case ToolCall(name=name, arguments=arguments):
                yield from _quoted(f"you called {name}", _as_text(arguments))
            case ToolResult(output=output, error=error):
                yield from _quoted("it failed" if error else "it gave", _as_text(output))
            case _:
                if text := shown(part):
                    yield from _quoted(speaker.get(message.role, "you said"), text)


def _quoted(head: str, text: str) -> Iterator[str]:
    yield f"[{head}]"
    yield from (f"    {line}" for line in text.splitlines())


def _as_text(value: Json) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST_OUTPUT else f"{text[:_LONGEST_OUTPUT]}… (cut off here)"
