"""The conversation as messages of the Messages API."""

from backstay.agents.provider.alternating_transcript import AlternatingTranscript, SentPart
from backstay.agents.provider.sent_values import arguments_object, output_text, sent_name
from backstay.agents.provider.thought_signature import read_signature
from backstay.model.content import Attachment, Custom, ToolCall, ToolResult
from backstay.model.ids import TurnId


class AnthropicTranscript(AlternatingTranscript):
    """The messages of a request. Thoughts are sent back if they have a signature of this model."""

    role, field = "assistant", "content"

    def _text(self, text: str) -> SentPart:
        return {"type": "text", "text": text}

    def _file(self, file: Attachment, data: str) -> SentPart:
        source = {"type": "base64", "media_type": file.media_type, "data": data}
        if file.media_type.startswith("image/"):
            return {"type": "image", "source": source}
        return {"type": "document", "source": source, "title": file.name}

    def _call(self, id: str, call: ToolCall) -> SentPart:
        return {"type": "tool_use", "id": id, "name": sent_name(call.name), "input": arguments_object(call.arguments)}

    def _result(self, id: str, result: ToolResult) -> SentPart:
        sent: SentPart = {"type": "tool_result", "tool_use_id": id, "content": output_text(result.output)}
        return sent | ({"is_error": True} if result.error else {})

    def _sign(self, turn: TurnId | None, thought: str, part: Custom) -> None:
        found = read_signature(part, self._model)
        if found is not None and found.hidden:
            self._add_model_part(turn, {"type": "redacted_thinking", "data": found.signature})
        elif found is not None and found.signature:
            self._add_model_part(turn, {"type": "thinking", "thinking": thought, "signature": found.signature})
