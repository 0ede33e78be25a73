"""One answer of the Gemini API, assembled from the chunks of its stream."""

from typing import Any

import msgspec

from backstay.agents.provider.answer import CallDraft, CallDrafts, ModelCall, clamped
from backstay.agents.provider.thought_signature import signature_of
from backstay.errors import AgentFailed
from backstay.model.content import Body, Json, Text, Thought, Usage

_LENGTH = "MAX_TOKENS"
_FILTERED = frozenset(
    ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "IMAGE_RECITATION")
)
_FAILED = frozenset(("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"))


class GeminiCall(msgspec.Struct, frozen=True):
    name: str = ""
    args: dict[str, Json] | None = None
    id: str | None = None


class GeminiPart(msgspec.Struct, frozen=True, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    function_call: GeminiCall | None = None
    thought_signature: str | None = None


class GeminiContent(msgspec.Struct, frozen=True):
    parts: tuple[GeminiPart, ...] | None = None


class GeminiCandidate(msgspec.Struct, frozen=True, rename="camel"):
    content: GeminiContent | None = None
    finish_reason: str | None = None
    index: int | None = None


class GeminiUsage(msgspec.Struct, frozen=True, rename="camel"):
    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None


class GeminiFeedback(msgspec.Struct, frozen=True, rename="camel"):
    block_reason: str | None = None


class GeminiChunk(msgspec.Struct, frozen=True, rename="camel"):
    """One event of the stream. Every field may be missing."""

    candidates: tuple[GeminiCandidate, ...] | None = None
    usage_metadata: GeminiUsage | None = None
    model_version: str | None = None
    prompt_feedback: GeminiFeedback | None = None
    reported: Any = msgspec.field(default=None, name="error")  # Any: an object, a text, or any other form of error

    @property
    def candidate(self) -> GeminiCandidate:
        """The first candidate; we never request a second."""
        return next((one for one in self.candidates or () if not one.index), GeminiCandidate())

    @property
    def parts(self) -> tuple[GeminiPart, ...]:
        content = self.candidate.content
        return (content.parts if content else None) or ()

    @property
    def ended(self) -> bool:
        return self.candidate.finish_reason is not None

    @property
    def has_output(self) -> bool:
        return any(part.text or part.function_call for part in self.parts)

    @property
    def error(self) -> Json:
        """The error in the stream; a blocked prompt is a refused input."""
        reason = self.prompt_feedback.block_reason if self.prompt_feedback else None
        if self.reported is None and reason:
            return {"code": 400, "message": f"the prompt was flagged and blocked: {reason}"}
        return self.reported


class GeminiAnswer:
    """The answer so far."""

    def __init__(self, model: str) -> None:
        self._requested_model = self._model = model
        self._usage: GeminiUsage | None = None
        self._drafts = CallDrafts()
        self._finish_reason: str | None = None
        self._silent = True

    def add(self, chunk: GeminiChunk) -> list[Body]:
        """Add a chunk; return the output to yield now."""
        self._model = chunk.model_version or self._model
        self._usage = chunk.usage_metadata or self._usage
        self._finish_reason = chunk.candidate.finish_reason or self._finish_reason
        self._silent = self._silent and not (chunk.has_output or chunk.ended)
        if self._finish_reason in _FAILED:
            raise AgentFailed(f"the model {self._requested_model!r} ended its answer with {self._finish_reason}")
        return [body for part in chunk.parts for body in self._add_part(part)]

    @property
    def silent(self) -> bool:
        return self._silent

    @property
    def cut(self) -> str | None:
        if self._finish_reason in _FILTERED:
            return "content_filter"
        return "length" if self._finish_reason == _LENGTH else None

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        return self._drafts.whole()

    @property
    def usage(self) -> Usage | None:
        found = self._usage
        if found is None:
            return None
        return Usage(
            input_tokens=clamped(found.prompt_token_count),
            output_tokens=clamped(clamped(found.candidates_token_count) + clamped(found.thoughts_token_count)),
            cached_tokens=clamped(found.cached_content_token_count),
            model=self._model,
            reasoning_tokens=clamped(found.thoughts_token_count),
        )

    def _add_part(self, part: GeminiPart) -> list[Body]:
        signature = part.thought_signature or ""
        if part.function_call is not None:
            call = part.function_call
            draft = self._drafts.start(CallDraft(id=call.id or "", name=call.name, signature=signature))
            draft.add(msgspec.json.encode(call.args or {}).decode())
            return []
        text = Thought(part.text or "") if part.thought else Text(part.text or "")
        return [
            *([text] if text.text else []),
            *([signature_of(self._requested_model, signature)] if signature else []),
        ]
