"""The conversation as messages of the Chat Completions API."""

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
    """The messages of a request. Adjacent messages of one role are merged, because some models require alternation.

    Reasoning is not sent back. Call ids are made unique in the whole conversation, as some providers require; ours and
    the models' are unique only within a turn.
    """

    def __init__(self, system: str | None, messages: Iterable[Message]) -> None:
        self.messages: list[ChatMessage] = []
        self._open: dict[str, str] = {}
        self._used: dict[str, int] = {}
        self._add("system", system or "")
        for message in messages:
            self._read(message)

    def add_user_message(self, parts: Sequence[Part]) -> None:
        """Add a message of the user."""
        self._add("user", "\n".join(text for part in parts if (text := shown(part))))

    def add_text(self, text: str) -> None:
        """Add text of the agent. While a call is open, the text belongs to the message that made the call."""
        if text:
            asking = self._asking()
            asking.content = f"{asking.content}\n\n{text}" if asking.content else text

    def call(self, id: str, name: str, arguments: Json) -> None:
        """Add a tool call of the agent."""
        asking, unique_id = self._asking(), self._unique(id)
        self._open[id] = unique_id
        asking.tool_calls.append(ChatCall(unique_id, FunctionCall(_name(name), _object(arguments))))

    def result(self, id: str, output: Json, *, error: bool) -> None:
        """Add the result of the call with this id."""
        text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
        unique_id = self._open.pop(id)
        self.messages.append(ChatMessage("tool", f"Error: {text}" if error else text, tool_call_id=unique_id))

    def _read(self, message: Message) -> None:
        match message.role:
            case "user":
                self.add_user_message(message.parts)
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
                self.add_text(shown(part))

    def _add(self, role: str, text: str) -> None:
        last = self.messages[-1] if self.messages else None
        if last is not None and last.role == role and text:
            last.content = f"{last.content}\n\n{text}"
        elif text:
            self.messages.append(ChatMessage(role, text))

    def _asking(self) -> ChatMessage:
        """Return the agent's message to append to: its last, if no message follows it, or a new one."""
        if self._open:
            return next(message for message in reversed(self.messages) if message.role == "assistant")
        if not self.messages or self.messages[-1].role != "assistant":
            self.messages.append(ChatMessage("assistant", None))
        return self.messages[-1]

    def _unique(self, id: str) -> str:
        unique_id = id
        while unique_id in self._used:
            self._used[id] += 1
            unique_id = f"{id}-{self._used[id]}"
        self._used[unique_id] = 1
        return unique_id


def shown(part: Part) -> str:
    """Return a part of a message as text for a model; empty for parts that are sent in another way."""
    match part:
        case Text(text):
            return text
        case Attachment():
            return f"[attached file {part.name}: {part.media_type}, {part.size:,} bytes]"
        case _:
            return ""


def _name(name: str) -> str:
    """Return a tool name that every provider accepts, also if a model or another agent invented it."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unnamed"


def _object(arguments: Json) -> str:
    """Encode arguments as a JSON object, which every provider accepts."""
    return msgspec.json.encode(arguments if isinstance(arguments, dict) else {"arguments": arguments}).decode()
