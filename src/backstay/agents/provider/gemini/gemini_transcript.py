"""The conversation as contents of the Gemini API."""

from collections.abc import Iterable

from backstay.agents.attached_files import AttachedFiles
from backstay.agents.provider.alternating_transcript import AlternatingTranscript, SentPart
from backstay.agents.provider.sent_values import arguments_object, output_text, sent_name
from backstay.agents.provider.thought_signature import read_signature
from backstay.model.content import Attachment, Custom, Json, ToolCall, ToolResult
from backstay.model.ids import TurnId
from backstay.model.message import Message

# The API accepts it in place of a signature for a call that the model did not make in this place.
_NO_SIGNATURE = "skip_thought_signature_validator"


class GeminiTranscript(AlternatingTranscript):
    """The contents of a request.

    Thoughts are not sent back, but signatures of this model are: newer models refuse a call without one.
    """

    role, field = "model", "parts"

    def __init__(
        self, system: str, messages: Iterable[Message], model: str, *, files: AttachedFiles | None = None
    ) -> None:
        self._names: dict[str, str] = {}
        self._signatures: dict[str, str] = {}
        self._signs = False
        super().__init__(system, messages, model, files=files)

    def _text(self, text: str) -> SentPart:
        return {"text": text}

    def _file(self, file: Attachment, data: str) -> SentPart:
        return {"inlineData": {"mimeType": file.media_type, "data": data}}

    def _call(self, id: str, call: ToolCall) -> SentPart:
        name = self._names[id] = sent_name(call.name)
        sent: SentPart = {"functionCall": {"id": id, "name": name, "args": arguments_object(call.arguments)}}
        signature = self._signatures.pop(call.id, "") or (_NO_SIGNATURE if self._needs_signature() else "")
        return sent | ({"thoughtSignature": signature} if signature else {})

    def _result(self, id: str, result: ToolResult) -> SentPart:
        output = result.output
        response: Json = output if isinstance(output, dict) else {"result": output}
        if result.error:
            response = {"error": output_text(output)}
        return {"functionResponse": {"id": id, "name": self._names[id], "response": response}}

    def _sign(self, turn: TurnId | None, thought: str, part: Custom) -> None:
        found = read_signature(part, self._model)
        if found is None:
            return
        self._signs = True
        if found.call is None:
            self._add_model_part(turn, {"text": "", "thoughtSignature": found.signature})
        else:
            self._signatures[found.call] = found.signature

    def _needs_signature(self) -> bool:
        """Whether this model signs calls, and the next call is the first of its message."""
        parts = self.messages[-1]["parts"] if self._is_last_from_model() else []
        return self._signs and not any("functionCall" in part for part in parts)
