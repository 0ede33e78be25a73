"""A completion: one answer of a model, put together from the chunks of its stream."""

from typing import Any

import msgspec

from backstay.errors import AgentFailed
from backstay.model.content import MOST_INTEGER, Body, Json, Text, Thought, Usage
from backstay.model.limits import Limits

# A model that is well never wants so much; one that is not would fill the memory.
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


class Chunk(msgspec.Struct, frozen=True):
    """One event of the stream. Every field may be missing or null: providers differ."""

    choices: list[Choice] | None = None
    usage: Tally | None = None
    model: str | None = None
    error: Any = None  # Any: an object, a text, or whatever the provider thinks an error is

    @property
    def choice(self) -> Choice | None:
        """The first answer; we never ask for a second."""
        return next((choice for choice in self.choices or () if not choice.index), None)

    @property
    def delta(self) -> Delta:
        return (self.choice.delta if self.choice else None) or Delta()

    @property
    def finish_reason(self) -> str | None:
        """Why the model says no more, in its last chunk."""
        return self.choice.finish_reason if self.choice else None

    @property
    def speaks(self) -> bool:
        """Whether a word, a thought or a part of a call is in it."""
        return any([*words_of(self.delta), self.delta.tool_calls])


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """A model's wish to call a tool, in the model's own words: nothing is checked yet."""

    id: str
    name: str
    arguments: str


class Draft(msgspec.Struct, kw_only=True):
    """A call that is still being said."""

    id: str
    name: str = ""
    pieces: list[str] = []
    length: int = 0

    def add(self, piece: str) -> None:
        """Take more of the arguments, but no more than a call could keep."""
        self.length += len(piece)
        if self.length > MOST_OF_ARGUMENTS:
            raise AgentFailed(f"the model gave {self.name!r} more than {MOST_OF_ARGUMENTS:,} characters of arguments")
        self.pieces.append(piece)


class Completion:
    """Grows with every chunk."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._tally: Tally | None = None
        self._words: list[str] = []
        self._drafts: list[Draft] = []
        self._latest: dict[int, Draft] = {}
        self.silent = True
        self.finish_reason: str | None = None

    def add(self, chunk: Chunk) -> list[Body]:
        """Take a chunk in; what it lets the agent say at once."""
        self._model = chunk.model or self._model
        self._tally = chunk.usage or self._tally
        self.finish_reason = chunk.finish_reason or self.finish_reason
        self.silent = self.silent and not (chunk.speaks or chunk.finish_reason)
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
        """The calls in the order in which they began, each with an id of its own, whatever the model sent."""
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

    def _draft_of(self, delta: CallDelta) -> Draft:
        """The call that this delta goes on with. Some providers number every call 0, or none; then a new id tells."""
        index = delta.index or 0
        latest = self._latest.get(index)
        if latest is None or (delta.id and latest.id and delta.id != latest.id):
            if len(self._drafts) == MOST_CALLS:
                raise AgentFailed(f"the model wanted more than {MOST_CALLS} tools at once; none of them was run")
            latest = self._latest[index] = Draft(id=delta.id or "")
            self._drafts.append(latest)
        latest.id = latest.id or delta.id or ""
        return latest


def _sane(count: int | None) -> int:
    """A number of tokens that there can be."""
    return min(max(0, count or 0), MOST_INTEGER)


def words_of(delta: Delta) -> tuple[str, str]:
    """The thought and the words of a delta."""
    return delta.reasoning_content or delta.reasoning or "", (delta.content or "") + (delta.refusal or "")
