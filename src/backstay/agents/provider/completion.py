"""One answer of a model, assembled from the chunks of its stream."""

from typing import Any

import msgspec

from backstay.agents.provider.answer import CallDraft, CallDrafts, ModelCall, clamped
from backstay.model.content import Body, Json, Text, Thought, Usage

_CUT = ("length", "content_filter")


class FunctionDelta(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | dict[str, Json] | None = None


class CallDelta(msgspec.Struct, frozen=True):
    index: int | None = None
    id: str | None = None
    function: FunctionDelta | None = None


class Delta(msgspec.Struct, frozen=True):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CallDelta] | None = None


class Choice(msgspec.Struct, frozen=True):
    index: int | None = None
    delta: Delta | None = None
    finish_reason: str | None = None


class Details(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class Tally(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Details | None = None
    completion_tokens_details: Details | None = None


class CompletionChunk(msgspec.Struct, frozen=True):
    """One event of the stream. Every field may be missing or null, because providers differ."""

    choices: list[Choice] | None = None
    usage: Tally | None = None
    model: str | None = None
    error: Any = None  # Any: an object, a text, or any other form of error

    @property
    def choice(self) -> Choice | None:
        """The first choice; we never request a second."""
        return next((choice for choice in self.choices or () if not choice.index), None)

    @property
    def delta(self) -> Delta:
        return (self.choice.delta if self.choice else None) or Delta()

    @property
    def finish_reason(self) -> str | None:
        """The reason why the answer ended, in the last chunk."""
        return self.choice.finish_reason if self.choice else None

    @property
    def ended(self) -> bool:
        return self.finish_reason is not None

    @property
    def has_output(self) -> bool:
        """Whether the chunk has text, reasoning or a part of a tool call."""
        return any([*thought_and_text(self.delta), self.delta.tool_calls])


class Completion:
    """The answer so far."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._usage_sent: Tally | None = None
        self._drafts = CallDrafts()
        self._latest: dict[int, CallDraft] = {}
        self._silent = True
        self._finish_reason: str | None = None

    def add(self, chunk: CompletionChunk) -> list[Body]:
        """Add a chunk; return the output to yield now."""
        self._model = chunk.model or self._model
        self._usage_sent = chunk.usage or self._usage_sent
        self._finish_reason = chunk.finish_reason or self._finish_reason
        self._silent = self._silent and not (chunk.has_output or chunk.finish_reason)
        for call in chunk.delta.tool_calls or ():
            self._add_call(call)
        thought, words = thought_and_text(chunk.delta)
        return [body for body in (Thought(thought), Text(words)) if body.text]

    @property
    def silent(self) -> bool:
        return self._silent

    @property
    def cut(self) -> str | None:
        return self._finish_reason if self._finish_reason in _CUT else None

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        return self._drafts.whole()

    @property
    def usage(self) -> Usage | None:
        if self._usage_sent is None:
            return None
        details = self._usage_sent.prompt_tokens_details or Details()
        written = self._usage_sent.completion_tokens_details or Details()
        return Usage(
            input_tokens=clamped(self._usage_sent.prompt_tokens),
            output_tokens=clamped(self._usage_sent.completion_tokens),
            cached_tokens=clamped(details.cached_tokens),
            model=self._model,
            reasoning_tokens=clamped(written.reasoning_tokens),
        )

    def _add_call(self, delta: CallDelta) -> None:
        draft = self._draft_of(delta)
        function = delta.function or FunctionDelta()
        draft.name = draft.name or function.name or ""
        if isinstance(function.arguments, dict):
            draft.add(msgspec.json.encode(function.arguments).decode())
        elif function.arguments:
            draft.add(function.arguments)

    def _draft_of(self, delta: CallDelta) -> CallDraft:
        """Return the call that this delta continues. Some providers send index 0 for all calls; then the id decides."""
        index = delta.index or 0
        latest = self._latest.get(index)
        if latest is None or (delta.id and latest.id and delta.id != latest.id):
            latest = self._latest[index] = self._drafts.start(CallDraft(id=delta.id or ""))
        latest.id = latest.id or delta.id or ""
        return latest


def thought_and_text(delta: Delta) -> tuple[str, str]:
    """Return the reasoning and the text of a delta."""
    return delta.reasoning_content or delta.reasoning or "", (delta.content or "") + (delta.refusal or "")
