"""One answer of the Messages API, assembled from the events of its stream."""

from typing import Any

import msgspec

from backstay.agents.provider.answer import CallDraft, CallDrafts, ModelCall, clamped
from backstay.agents.provider.thought_signature import signature_of
from backstay.model.content import Body, Json, Text, Thought, Usage

_CUT = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


class AnthropicUsage(msgspec.Struct, frozen=True):
    """Token counts. `input_tokens` are those that were neither read from the cache nor written to it."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class AnthropicStart(msgspec.Struct, frozen=True):
    model: str | None = None
    usage: AnthropicUsage | None = None


class AnthropicBlock(msgspec.Struct, frozen=True):
    type: str
    id: str | None = None
    name: str | None = None
    text: str | None = None
    data: str | None = None
    input: Json = None


class AnthropicDelta(msgspec.Struct, frozen=True):
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class AnthropicEvent(msgspec.Struct, frozen=True):
    """One event of the stream. Unknown events and fields are ignored."""

    type: str
    index: int | None = None
    message: AnthropicStart | None = None
    content_block: AnthropicBlock | None = None
    delta: AnthropicDelta | None = None
    usage: AnthropicUsage | None = None
    error: Any = None  # Any: an object, a text, or any other form of error

    @property
    def ended(self) -> bool:
        return self.type == "message_stop" or self.stop_reason is not None

    @property
    def stop_reason(self) -> str | None:
        """The reason why the answer ended, in the last event but one."""
        return self.delta.stop_reason if self.delta else None

    @property
    def has_output(self) -> bool:
        delta, block = self.delta or AnthropicDelta(), self.content_block
        return bool(delta.text or delta.thinking or delta.partial_json or (block and block.type == "tool_use"))


class AnthropicAnswer:
    """The answer so far. A block ends before the next one starts."""

    def __init__(self, model: str) -> None:
        self._requested_model = self._model = model
        self._usage: AnthropicUsage | None = None
        self._drafts = CallDrafts()
        self._block = AnthropicBlock("none")
        self._draft: CallDraft | None = None
        self._signature = ""
        self._stop_reason: str | None = None
        self._silent = True

    def add(self, chunk: AnthropicEvent) -> list[Body]:
        """Add an event; return the output to yield now."""
        self._silent = self._silent and not (chunk.has_output or chunk.stop_reason)
        self._stop_reason = chunk.stop_reason or self._stop_reason
        match chunk.type:
            case "message_start" if chunk.message:
                self._model, self._usage = chunk.message.model or self._model, chunk.message.usage
            case "content_block_start" if chunk.content_block:
                return self._start(chunk.content_block)
            case "content_block_delta" if chunk.delta:
                return self._add_delta(chunk.delta)
            case "content_block_stop":
                return self._stop()
            case "message_delta" if chunk.usage:
                self._usage = _merged(self._usage, chunk.usage)
        return []

    @property
    def silent(self) -> bool:
        return self._silent

    @property
    def cut(self) -> str | None:
        return _CUT.get(self._stop_reason or "")

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        return self._drafts.whole()

    @property
    def usage(self) -> Usage | None:
        found = self._usage
        if found is None:
            return None
        cached, written = clamped(found.cache_read_input_tokens), clamped(found.cache_creation_input_tokens)
        return Usage(
            input_tokens=clamped(clamped(found.input_tokens) + cached + written),
            output_tokens=clamped(found.output_tokens),
            cached_tokens=cached,
            model=self._model,
        )

    def _start(self, block: AnthropicBlock) -> list[Body]:
        self._block, self._signature, self._draft = block, "", None
        if block.type == "tool_use":
            self._draft = self._drafts.start(CallDraft(id=block.id or "", name=block.name or ""))
        return [Text(block.text)] if block.type == "text" and block.text else []

    def _add_delta(self, delta: AnthropicDelta) -> list[Body]:
        self._signature += delta.signature or ""
        if self._draft is not None and delta.partial_json:
            self._draft.add(delta.partial_json)
        return [body for body in (Thought(delta.thinking or ""), Text(delta.text or "")) if body.text]

    def _stop(self) -> list[Body]:
        """End a block. Thoughts are stored with their signature: the provider wants both back, unchanged."""
        block, self._block = self._block, AnthropicBlock("none")
        match block.type:
            case "thinking":
                return [signature_of(self._requested_model, self._signature)]
            case "redacted_thinking":
                return [signature_of(self._requested_model, block.data or "", hidden=True)]
            case "tool_use" if self._draft is not None and not self._draft.pieces and block.input:
                self._draft.add(msgspec.json.encode(block.input).decode())
        return []


def _merged(first: AnthropicUsage | None, last: AnthropicUsage) -> AnthropicUsage:
    """Return the counts of the last event, and those of the first event that the last one lacks."""
    if first is None:
        return last
    counts = msgspec.structs.asdict(last).items()
    return msgspec.structs.replace(first, **{name: count for name, count in counts if count is not None})
