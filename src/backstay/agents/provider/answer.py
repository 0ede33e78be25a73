"""One answer of a model while it streams: the parts that all providers have in common."""

from typing import Protocol, TypeVar

import msgspec

from backstay.errors import AgentFailed
from backstay.model.content import MOST_INTEGER, Body, Usage
from backstay.model.limits import Limits

# More than any sensible answer; without these limits a faulty model could fill the memory.
MOST_CALLS = 64
MOST_OF_ARGUMENTS = Limits().message_bytes

ReadT_contra = TypeVar("ReadT_contra", contravariant=True)


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call as the model sent it, not validated. `signature` is the provider's signature of the call, if any."""

    id: str
    name: str
    arguments: str
    signature: str = ""


class Answer(Protocol[ReadT_contra]):
    """The answer so far."""

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        """The calls in the order in which they started."""
        ...

    @property
    def usage(self) -> Usage | None:
        """The tokens of the answer, if the provider has reported them."""
        ...

    @property
    def silent(self) -> bool:
        """Whether nothing has arrived, not even an end."""
        ...

    @property
    def cut(self) -> str | None:
        """Why the answer is incomplete: "length" or "content_filter"."""
        ...

    def add(self, chunk: ReadT_contra) -> list[Body]:
        """Add a chunk; return the output to yield now."""
        ...


class CallDraft(msgspec.Struct, kw_only=True):
    """A tool call that is still streaming."""

    id: str
    name: str = ""
    signature: str = ""
    pieces: list[str] = []
    length: int = 0

    def add(self, piece: str) -> None:
        """Append to the arguments; raise `AgentFailed` if they exceed the limit of a message."""
        self.length += len(piece)
        if self.length > MOST_OF_ARGUMENTS:
            raise AgentFailed(
                f"the model sent more than {MOST_OF_ARGUMENTS:,} characters of arguments for {self.name!r}"
            )
        self.pieces.append(piece)

    def whole(self) -> ModelCall:
        """Return the call."""
        return ModelCall(id=self.id, name=self.name, arguments="".join(self.pieces), signature=self.signature)


class CallDrafts:
    """The tool calls of one answer, in the order in which they started."""

    def __init__(self) -> None:
        self._drafts: list[CallDraft] = []

    def start(self, draft: CallDraft) -> CallDraft:
        """Add a call; raise `AgentFailed` if there are too many."""
        if len(self._drafts) == MOST_CALLS:
            raise AgentFailed(f"the model requested more than {MOST_CALLS} tool calls at once; none of them was run")
        self._drafts.append(draft)
        return draft

    def whole(self) -> tuple[ModelCall, ...]:
        """Return the calls, with the ids that the model sent; some send none."""
        return tuple(draft.whole() for draft in self._drafts)


def clamped(count: int | None) -> int:
    """Return a token count within the valid range."""
    return min(max(0, count or 0), MOST_INTEGER)
