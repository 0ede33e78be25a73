"""The conversation as messages of the Chat Completions API."""

from collections.abc import Iterable, Sequence

import msgspec

from backstay.agents.attached_files import AttachedFiles
from backstay.agents.provider.call_ids import SentIds, is_short
from backstay.agents.provider.sent_values import arguments_object, output_text, sent_name
from backstay.agents.provider.step_output import repeated_call
from backstay.model.content import Attachment, Custom, Json, Part, Text, ToolCall, ToolResult
from backstay.model.ids import TurnId
from backstay.model.message import Message


class FunctionCall(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class ChatCall(msgspec.Struct, frozen=True):
    id: str
    function: FunctionCall
    type: str = "function"


SentPart = dict[str, Json]


class ChatMessage(msgspec.Struct, omit_defaults=True):
    role: str
    content: str | list[SentPart] | None
    tool_calls: list[ChatCall] = []
    tool_call_id: str | None = None


class Transcript:
    """The messages of a request. Adjacent messages of one role are merged, because some models require alternation.

    Equal messages give equal bytes, whether the model has just produced them or they were read from the store. So each
    request begins like the one before it, which lets the provider use its prompt cache.

    Reasoning is not sent back. Call ids are made unique in the whole conversation, as some providers require; ours and
    the models' are unique only within a turn.

    Args:
        system: The system prompt.
        messages: The history.
        short_ids: Whether the provider accepts only call ids of nine letters and digits.
        files: The files of the messages.
    """

    def __init__(
        self,
        system: str | None,
        messages: Iterable[Message],
        *,
        short_ids: bool = False,
        files: AttachedFiles | None = None,
    ) -> None:
        self.messages: list[ChatMessage] = []
        self._files = files
        self._ids = SentIds(is_short if short_ids else bool)
        self._add("system", system or "")
        self.read(messages)

    def read(self, messages: Iterable[Message]) -> None:
        """Add messages of the history, or of the running turn."""
        for message in messages:
            self._read(message)

    def add_user_message(self, parts: Sequence[Part]) -> None:
        """Add a message of the user. With files, its content is a list of parts."""
        files = [part for part in parts if isinstance(part, Attachment)]
        self._add("user", "\n".join(text for part in parts if part not in files and (text := shown(part))))
        if self._files is not None and files:
            self._attach([file_part(file, self._files.data(file)) for file in files])

    def add_text(self, text: str) -> None:
        """Add text of the agent. While a call is open, the text belongs to the message that made the call."""
        if text:
            _append(self._agent_message(), text)

    def call(self, turn: TurnId | None, id: str, name: str, arguments: Json) -> None:
        """Add a tool call of the agent."""
        message = self._agent_message()
        message.tool_calls.append(ChatCall(self._ids.open(turn, id), FunctionCall(sent_name(name), _object(arguments))))

    def result(self, id: str, output: Json, *, error: bool) -> None:
        """Add the result of the call with this id."""
        text = output_text(output)
        self.messages.append(ChatMessage("tool", f"Error: {text}" if error else text, tool_call_id=self._ids.close(id)))

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
                    self._follow(message.turn, part)

    def _follow(self, turn: TurnId | None, part: Part) -> None:
        match part:
            case ToolCall():
                self.call(turn, part.id, part.name, part.arguments)
            case ToolResult():
                self.result(part.id, part.output, error=part.error)
            case Custom() if pair := repeated_call(part):
                for one in pair:
                    self._follow(turn, one)
            case _:
                self.add_text(shown(part))

    def _add(self, role: str, text: str) -> None:
        last = self.messages[-1] if self.messages else None
        if last is not None and last.role == role and text:
            _append(last, text)
        elif text:
            self.messages.append(ChatMessage(role, text))

    def _attach(self, files: list[SentPart]) -> None:
        """Add files to the last message of the user, or as a message of their own."""
        if not self.messages or self.messages[-1].role != "user":
            self.messages.append(ChatMessage("user", []))
        last = self.messages[-1]
        if isinstance(last.content, str):
            last.content = [{"type": "text", "text": last.content}]
        last.content = [*(last.content or []), *files]

    def _agent_message(self) -> ChatMessage:
        """Return the agent's message to append to: its last, if no message follows it, or a new one."""
        if self._ids.waiting:
            return next(message for message in reversed(self.messages) if message.role == "assistant")
        if not self.messages or self.messages[-1].role != "assistant":
            self.messages.append(ChatMessage("assistant", None))
        return self.messages[-1]


def _append(message: ChatMessage, text: str) -> None:
    """Add text to a message, as a paragraph or, behind files, as a part."""
    if isinstance(message.content, list):
        message.content.append({"type": "text", "text": text})
    else:
        message.content = f"{message.content}\n\n{text}" if message.content else text


def file_part(file: Attachment, data: str) -> SentPart:
    """Return a file, with its bytes in base64, as a part of a message."""
    url = f"data:{file.media_type};base64,{data}"
    kind, _, form = file.media_type.partition("/")
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    if kind == "audio":
        # The API names two formats, and not by their media types.
        return {"type": "input_audio", "input_audio": {"data": data, "format": "mp3" if form == "mpeg" else form}}
    return {"type": "file", "file": {"filename": file.name, "file_data": url}}


def shown(part: Part) -> str:
    """Return a part of a message as text for a model; empty for parts that are sent in another way."""
    match part:
        case Text(text):
            return text
        case Attachment():
            return f"[attached file {part.name}: {part.media_type}, {part.size:,} bytes]"
        case _:
            return ""


def _object(arguments: Json) -> str:
    """Encode arguments as a JSON object, which every provider accepts. An object that is text already is unchanged."""
    if isinstance(arguments, str) and "arguments" not in arguments_object(arguments):
        return arguments
    return msgspec.json.encode(arguments_object(arguments)).decode()
