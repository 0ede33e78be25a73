"""A transcript: the conversation as the Chat Completions wire wants to read it."""

import re
from collections.abc import Iterable, Sequence

import msgspec

from backstay.model.content import Attachment, Json, Part, Text, ToolCall, ToolResult
from backstay.model.message import Message


class FunctionCall(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class ChatCall(msgspec.Struct, frozen=True):
    id: str
    function: FunctionCall
    type: str = "function"


class ChatMessage(msgspec.Struct, omit_defaults=True):
    role: str
    content: str | None
    tool_calls: list[ChatCall] = []
    tool_call_id: str | None = None


class Transcript:
    """Grows with what is said. Neighbours of one role become one message, because some models insist on turns.

    Thoughts are not sent: they were the model's own. Call ids are unique in the whole conversation, as some
    providers demand, although ours and the models' are so only within a turn.
    """

    def __init__(self, system: str | None, messages: Iterable[Message]) -> None:
        self.messages: list[ChatMessage] = []
        self._open: dict[str, str] = {}
        self._used: dict[str, int] = {}
        self._add("system", system or "")
        for message in messages:
            self._read(message)

    def hear(self, parts: Sequence[Part]) -> None:
        """A person has said this."""
        self._add("user", "\n".join(text for part in parts if (text := shown(part))))

    def say(self, text: str) -> None:
        """The agent has said this. While a call is open, it belongs to the message that made the call."""
        if text:
            asking = self._asking()
            asking.content = f"{asking.content}\n\n{text}" if asking.content else text

    def call(self, id: str, name: str, arguments: Json) -> None:
        """The agent has called a tool."""
        asking, wire = self._asking(), self._unique(id)
        self._open[id] = wire
        asking.tool_calls.append(ChatCall(wire, FunctionCall(_name(name), _object(arguments))))

    def result(self, id: str, output: Json, *, error: bool) -> None:
        """The call with this id gave this back."""
        text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
        wire = self._open.pop(id)
        self.messages.append(ChatMessage("tool", f"Error: {text}" if error else text, tool_call_id=wire))

    def _read(self, message: Message) -> None:
        match message.role:
            case "user":
                self.hear(message.parts)
            case "system":
                self._add("system", message.text)
            case "summary":
                self._add("system", f"Summary of the conversation so far:\n{message.text}")
            case "assistant" | "tool":
                for part in message.parts:
                    self._follow(part)

    def _follow(self, part: Part) -> None:
        match part:
            case ToolCall():
                self.call(part.id, part.name, part.arguments)
            case ToolResult():
                self.result(part.id, part.output, error=part.error)
            case _:
                self.say(shown(part))

    def _add(self, role: str, text: str) -> None:
        last = self.messages[-1] if self.messages else None
        if last is not None and last.role == role and text:
            last.content = f"{last.content}\n\n{text}"
        elif text:
            self.messages.append(ChatMessage(role, text))

    def _asking(self) -> ChatMessage:
        """The agent's message to go on with: its last, as long as nobody has spoken since."""
        if self._open:
            return next(message for message in reversed(self.messages) if message.role == "assistant")
        if not self.messages or self.messages[-1].role != "assistant":
            self.messages.append(ChatMessage("assistant", None))
        return self.messages[-1]

    def _unique(self, id: str) -> str:
        wire = id
        while wire in self._used:
            self._used[id] += 1
            wire = f"{id}-{self._used[id]}"
        self._used[wire] = 1
        return wire


def shown(part: Part) -> str:
    """A part of a message as words for a model; empty for what it is told otherwise."""
    match part:
        case Text(text):
            return text
        case Attachment():
            return f"[attached file {part.name}: {part.media_type}, {part.size:,} bytes]"
        case _:
            return ""


def _name(name: str) -> str:
    """A tool's name as every provider accepts it, also when a model or another agent made it up."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unnamed"


def _object(arguments: Json) -> str:
    """Arguments as the JSON object that every provider can read back."""
    return msgspec.json.encode(arguments if isinstance(arguments, dict) else {"arguments": arguments}).decode()
