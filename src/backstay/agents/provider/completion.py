"""One answer of a model, assembled from the chunks of its stream."""

from typing import Any

import msgspec

from backstay.errors import AgentFailed
from backstay.model.content import MOST_INTEGER, Body, Json, Text, Thought, Usage
from backstay.model.limits import Limits

# More than any sensible answer; without these limits a faulty model could fill the memory.
MOST_CALLS = 64
MOST_OF_ARGUMENTS = Limits().message_bytes


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


class Tally(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Details | None = None


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
    def has_output(self) -> bool:
        """Whether the chunk has text, reasoning or a part of a tool call."""
        return any([*words_of(self.delta), self.delta.tool_calls])


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call as the model sent it, not validated."""

    id: str
    name: str
    arguments: str


class CompletionDraft(msgspec.Struct, kw_only=True):
    """A tool call that is still streaming."""

    id: str
    name: str = ""
    pieces: list[str] = []
    length: int = 0

    def add(self, piece: str) -> None:
        """Append to the arguments; raise `AgentFailed` if they exceed the limit of a message."""
        self.length += len(piece)
        if self.length > MOST_OF_ARGUMENTS:
            raise AgentFailed(f"the model gave {self.name!r} more than {MOST_OF_ARGUMENTS:,} characters of arguments")
        self.pieces.append(piece)


class Completion:
    """The answer so far."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._tally: Tally | None = None
        self._words: list[str] = []
        self._drafts: list[CompletionDraft] = []
        self._latest: dict[int, CompletionDraft] = {}
        self.silent = True
        self.finish_reason: str | None = None

    def add(self, chunk: CompletionChunk) -> list[Body]:
        """Add a chunk; return the output to yield now."""
        self._model = chunk.model or self._model
        self._tally = chunk.usage or self._tally
        self.finish_reason = chunk.finish_reason or self.finish_reason
        self.silent = self.silent and not (chunk.has_output or chunk.finish_reason)
        for call in chunk.delta.tool_calls or ():
            self._add_call(call)
        thought, words = words_of(chunk.delta)
        self._words.append(words)
        return [body for body in (Thought(thought), Text(words)) if body.text]

    @property
    def text(self) -> str:
        return "".join(self._words)

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        """The calls in the order in which they started, with unique ids, whatever the model sent."""
        ids = [draft.id for draft in self._drafts]
        return tuple(
            ModelCall(
                id=draft.id if draft.id and ids.count(draft.id) == 1 else f"{draft.id}#{number}",
                name=draft.name,
                arguments="".join(draft.pieces),
            )
            for number, draft in enumerate(self._drafts, start=1)
        )

    @property
    def usage(self) -> Usage | None:
        if self._tally is None:
            return None
        details = self._tally.prompt_tokens_details or Details()
        return Usage(
            input_tokens=_sane(self._tally.prompt_tokens),
            output_tokens=_sane(self._tally.completion_tokens),
            cached_tokens=_sane(details.cached_tokens),
            model=self._model,
        )

    def _add_call(self, delta: CallDelta) -> None:
        draft = self._draft_of(delta)
        function = delta.function or FunctionDelta()
        draft.name = draft.name or function.name or ""
        if isinstance(function.arguments, dict):
            draft.add(msgspec.json.encode(function.arguments).decode())
        elif function.arguments:
            draft.add(function.arguments)

    def _draft_of(self, delta: CallDelta) -> CompletionDraft:
        """Return the call that this delta continues. Some providers send index 0 for all calls; then the id decides."""
        index = delta.index or 0
        latest = self._latest.get(index)
        if latest is None or (delta.id and latest.id and delta.id != latest.id):
            if len(self._drafts) == MOST_CALLS:
                raise AgentFailed(
                    f"the model requested more than {MOST_CALLS} tool calls at once; none of them was run"
                )
            latest = self._latest[index] = CompletionDraft(id=delta.id or "")
            self._drafts.append(latest)
        latest.id = latest.id or delta.id or ""
        return latest


def _sane(count: int | None) -> int:
    """Return a token count within the valid range."""
    return min(max(0, count or 0), MOST_INTEGER)


def words_of(delta: Delta) -> tuple[str, str]:
    """Return the reasoning and the text of a delta."""
    return delta.reasoning_content or delta.reasoning or "", (delta.content or "") + (delta.refusal or "")
