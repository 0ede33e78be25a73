"""The conversation for APIs in which the user and the model alternate, with a list of parts in each message."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

from backstay.agents.attached_files import AttachedFiles
from backstay.agents.provider.call_ids import SentIds, is_usable
from backstay.agents.provider.step_output import repeated_call
from backstay.agents.provider.transcript import shown
from backstay.model.content import Attachment, Custom, Json, Part, Text, Thought, ToolCall, ToolResult
from backstay.model.ids import TurnId
from backstay.model.message import Message

SentPart = dict[str, Json]

# A model answers only a message of the user. A resumed turn has no new one, so this text takes its place.
_CONTINUE = "Continue."


class AlternatingTranscript(ABC):
    """The messages of a request. Results of tools are messages of the user; blank text is left out.

    Args:
        system: The system prompt.
        messages: The history.
        model: The model.
        files: The files of the messages.
    """

    # The role of the model, and the field with the parts of a message.
    role: ClassVar[str]
    field: ClassVar[str]

    def __init__(
        self, system: str, messages: Iterable[Message], model: str, *, files: AttachedFiles | None = None
    ) -> None:
        self._files = files
        self.system = [system] if system else []
        self.messages: list[dict[str, Json]] = []
        self._model = model
        self._ids = SentIds(is_usable)
        self._last_turn: TurnId | None = None
        self.read(messages)
        if self._is_last_from_model():
            self._add("user", [self._text(_CONTINUE)])

    def read(self, messages: Iterable[Message]) -> None:
        """Add messages of the history, or of the running turn."""
        for message in messages:
            self._read(message)

    def add_user_message(self, parts: Sequence[Part]) -> None:
        """Add a message of the user."""
        self._add("user", [sent for part in parts for sent in self._user_parts(part)])

    @abstractmethod
    def _text(self, text: str) -> SentPart:
        """Return text as a part."""

    @abstractmethod
    def _file(self, file: Attachment, data: str) -> SentPart:
        """Return a file, with its bytes in base64, as a part."""

    @abstractmethod
    def _call(self, id: str, call: ToolCall) -> SentPart:
        """Return a tool call, with the id to send, as a part."""

    @abstractmethod
    def _result(self, id: str, result: ToolResult) -> SentPart:
        """Return the result of the call with this sent id as a part."""

    @abstractmethod
    def _sign(self, turn: TurnId | None, thought: str, part: Custom) -> None:
        """Read a part that may be the signature of this thought, which came directly before it."""

    def _user_parts(self, part: Part) -> list[SentPart]:
        """Return a part of a person's message as parts of the API."""
        if isinstance(part, Attachment):
            return [] if self._files is None else [self._file(part, self._files.data(part))]
        text = shown(part)
        return [self._text(text)] if text.strip() else []

    def _read(self, message: Message) -> None:
        match message.role:
            case "user":
                self.add_user_message(message.parts)
            case "system":
                self._instruct(message.text)
            case "summary":
                self._instruct(f"Summary of the conversation so far:\n{message.text}")
            case "assistant" | "tool":
                before: Part = Text("")
                for part in message.parts:
                    self._follow(message.turn, before, part)
                    before = part

    def _follow(self, turn: TurnId | None, before: Part, part: Part) -> None:
        match part:
            case ToolCall():
                self._add_model_part(turn, self._call(self._ids.open(turn, part.id), part), calls=True)
            case ToolResult():
                self._add("user", [self._result(self._ids.close(part.id), part)])
            case Custom() if pair := repeated_call(part):
                for one in pair:
                    self._follow(turn, part, one)
            case Custom():
                self._sign(turn, before.text if isinstance(before, Thought) else "", part)
            case _:
                for sent in self._user_parts(part):
                    self._add_model_part(turn, sent)

    def _instruct(self, text: str) -> None:
        """Add instructions: to the system prompt, or, if the conversation has begun, as a message of the user."""
        if text and not self.messages:
            self.system.append(text)
        elif text:
            self._add("user", [self._text(text)])

    def _add_model_part(self, turn: TurnId | None, part: SentPart, *, calls: bool = False) -> None:
        """Add a part of the model. While a call is open, other parts belong to the message that made the call."""
        if self._ids.waiting and not calls:
            last_from_model = next(message for message in reversed(self.messages) if message["role"] == self.role)
            last_from_model[self.field].append(part)
            return
        if self._is_last_from_model() and self._last_turn != turn:
            self._add("user", [self._text(_CONTINUE)])
        self._last_turn = turn
        self._add(self.role, [part])

    def _is_last_from_model(self) -> bool:
        return bool(self.messages) and self.messages[-1]["role"] == self.role

    def _add(self, role: str, parts: list[SentPart]) -> None:
        if parts and self.messages and self.messages[-1]["role"] == role:
            self.messages[-1][self.field] += parts
        elif parts:
            self.messages.append({"role": role, self.field: parts})
