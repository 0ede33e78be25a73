"""Answers of a scripted model in the formats of three providers, streamed or whole."""

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from backstay.model.content import Json, Text, Thought, ToolCall, Usage

Said = Text | Thought | ToolCall
MODEL = "scripted-model"
# Providers sign some output, and accept it only with the signature. Agents store it and send it back unchanged.
_SIGNATURE = "c2NyaXB0ZWQ="


class ModelFormat(Protocol):
    """The answers of one provider's API."""

    def begin(self) -> bytes:
        """The beginning of a stream."""
        ...

    def part(self, index: int, part: Said) -> bytes:
        """A part of the answer, in a stream."""
        ...

    def end(self, parts: Sequence[Said], usage: Usage) -> bytes:
        """The end of a stream."""
        ...

    def whole(self, parts: Sequence[Said], usage: Usage) -> Json:
        """An answer that is not streamed."""
        ...

    def error(self, status: int, message: str) -> Json:
        """The body of an error."""
        ...


class FoundFormat(NamedTuple):
    """The format that a request asks for, and whether it asks for a stream."""

    format: ModelFormat
    streamed: bool


def format_of(path: str, body: Json) -> FoundFormat | None:
    """The format of the API that a path belongs to; None for any other path."""
    place = path.partition("?")[0]
    asked = isinstance(body, dict) and body.get("stream") is True
    if place.endswith("/chat/completions"):
        return FoundFormat(OpenAIFormat(), asked)
    if place.endswith("/v1/messages"):
        return FoundFormat(AnthropicFormat(), asked)
    if place.endswith((":streamGenerateContent", ":generateContent")):
        return FoundFormat(GeminiFormat(), place.endswith(":streamGenerateContent"))
    return None


def _event(value: Json, kind: str = "") -> bytes:
    named = f"event: {kind}\n" if kind else ""
    return f"{named}data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def _calls(parts: Sequence[Said]) -> list[ToolCall]:
    return [part for part in parts if isinstance(part, ToolCall)]


def _joined(parts: Sequence[Said], kind: type[Text] | type[Thought]) -> str:
    return "".join(part.text for part in parts if isinstance(part, kind))


class OpenAIFormat:
    """The Chat Completions API."""

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def part(self, index: int, part: Said) -> bytes:
        match part:
            case Text(text):
                return self._chunk({"content": text})
            case Thought(text):
                return self._chunk({"reasoning": text})
            case ToolCall():
                return self._chunk({"tool_calls": [{"index": index} | self._call(part)]})

    def end(self, parts: Sequence[Said], usage: Usage) -> bytes:
        ended = self._chunk({}, "tool_calls" if _calls(parts) else "stop")
        counts = _event(self._about("chat.completion.chunk") | {"choices": [], "usage": self._usage(usage)})
        return ended + counts + b"data: [DONE]\n\n"

    def whole(self, parts: Sequence[Said], usage: Usage) -> Json:
        calls = [self._call(call) for call in _calls(parts)]
        text = _joined(parts, Text)
        message: dict[str, Json] = {"role": "assistant", "content": text if text or not calls else None}
        message |= {"tool_calls": calls} if calls else {}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        return self._about("chat.completion") | {"choices": [choice], "usage": self._usage(usage)}

    def error(self, status: int, message: str) -> Json:
        kind = "invalid_request_error" if status < 500 else "server_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}

    def _about(self, kind: str) -> dict[str, Json]:
        return {"id": "chatcmpl-scripted", "object": kind, "created": 0, "model": MODEL}

    def _chunk(self, delta: Json, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _event(self._about("chat.completion.chunk") | {"choices": [choice]})

    def _call(self, call: ToolCall) -> dict[str, Json]:
        function = {"name": call.name, "arguments": json.dumps(call.arguments)}
        return {"id": call.id, "type": "function", "function": function}

    def _usage(self, usage: Usage) -> Json:
        return {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        }


class AnthropicFormat:
    """The Messages API."""

    def begin(self) -> bytes:
        return self._event("message_start", message=self._about() | {"content": [], "usage": self._usage(Usage())})

    def part(self, index: int, part: Said) -> bytes:
        empty, deltas = self._deltas(part)
        block = self._block(part) | empty
        return b"".join(
            [
                self._event("content_block_start", index=index, content_block=block),
                *(self._event("content_block_delta", index=index, delta=delta) for delta in deltas),
                self._event("content_block_stop", index=index),
            ]
        )

    def end(self, parts: Sequence[Said], usage: Usage) -> bytes:
        delta = {"stop_reason": self._reason(parts), "stop_sequence": None}
        return self._event("message_delta", delta=delta, usage=self._usage(usage)) + self._event("message_stop")

    def whole(self, parts: Sequence[Said], usage: Usage) -> Json:
        content = [self._block(part) for part in parts]
        return self._about() | {
            "content": content,
            "stop_reason": self._reason(parts),
            "stop_sequence": None,
            "usage": self._usage(usage),
        }

    def error(self, status: int, message: str) -> Json:
        kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error", 529: "overloaded_error"}
        kind = kinds.get(status, "invalid_request_error" if status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}

    def _deltas(self, part: Said) -> tuple[dict[str, Json], list[Json]]:
        """The block of a part before its content, and the deltas with the content."""
        match part:
            case Text(text):
                return {"text": ""}, [{"type": "text_delta", "text": text}]
            case Thought(text):
                thought = {"type": "thinking_delta", "thinking": text}
                return {"thinking": "", "signature": ""}, [
                    thought,
                    {"type": "signature_delta", "signature": _SIGNATURE},
                ]
            case ToolCall():
                return {"input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(part.arguments)}]

    def _event(self, kind: str, **fields: Json) -> bytes:
        return _event({"type": kind} | fields, kind)

    def _about(self) -> dict[str, Json]:
        return {"id": "msg_scripted", "type": "message", "role": "assistant", "model": MODEL}

    def _block(self, part: Said) -> dict[str, Json]:
        match part:
            case Text(text):
                return {"type": "text", "text": text}
            case Thought(text):
                return {"type": "thinking", "thinking": text, "signature": _SIGNATURE}
            case ToolCall():
                return {"type": "tool_use", "id": part.id, "name": part.name, "input": part.arguments}

    def _reason(self, parts: Sequence[Said]) -> str:
        return "tool_use" if _calls(parts) else "end_turn"

    def _usage(self, usage: Usage) -> Json:
        return {
            "input_tokens": usage.input_tokens - usage.cached_tokens,
            "cache_read_input_tokens": usage.cached_tokens,
            "cache_creation_input_tokens": 0,
            "output_tokens": usage.output_tokens,
        }


class GeminiFormat:
    """The Gemini API."""

    def begin(self) -> bytes:
        return b""

    def part(self, index: int, part: Said) -> bytes:
        return self._chunk([self._part(part)])

    def end(self, parts: Sequence[Said], usage: Usage) -> bytes:
        return self._chunk([{"text": ""}], finish="STOP", usage=usage)

    def whole(self, parts: Sequence[Said], usage: Usage) -> Json:
        return self._response([self._part(part) for part in parts], "STOP", usage)

    def error(self, status: int, message: str) -> Json:
        return {"error": {"code": status, "message": message, "status": "UNKNOWN"}}

    def _chunk(self, parts: list[Json], finish: str | None = None, usage: Usage | None = None) -> bytes:
        return _event(self._response(parts, finish, usage))

    def _response(self, parts: list[Json], finish: str | None, usage: Usage | None) -> dict[str, Json]:
        candidate: dict[str, Json] = {"content": {"role": "model", "parts": parts}, "index": 0}
        candidate |= {"finishReason": finish} if finish else {}
        counts = {"usageMetadata": self._usage(usage)} if usage else {}
        return {"candidates": [candidate], "modelVersion": MODEL, "responseId": "scripted"} | counts

    def _part(self, part: Said) -> Json:
        match part:
            case Text(text):
                return {"text": text}
            case Thought(text):
                return {"text": text, "thought": True}
            case ToolCall():
                call = {"id": part.id, "name": part.name, "args": part.arguments}
                return {"functionCall": call, "thoughtSignature": _SIGNATURE}

    def _usage(self, usage: Usage) -> Json:
        return {
            "promptTokenCount": usage.input_tokens,
            "cachedContentTokenCount": usage.cached_tokens,
            "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
            "thoughtsTokenCount": usage.reasoning_tokens,
            "totalTokenCount": usage.input_tokens + usage.output_tokens,
        }


def streamed(format: ModelFormat, parts: Iterator[Said], usage: Usage) -> Iterator[bytes]:
    """The pieces of a stream. A piece is made when it is asked for."""
    said: list[Said] = []
    yield format.begin()
    for part in parts:
        yield format.part(len(said), part)
        said.append(part)
    yield format.end(said, usage)
