"""Ids of tool calls: the model's own id where possible, because every later request repeats it."""

import hashlib
import re
from collections.abc import Callable, Iterable

from backstay.agents.port import AgentTurn
from backstay.model.content import ToolCall
from backstay.model.ids import TurnId
from backstay.model.message import Message

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LENGTH = 9
# Ids are a part of URLs, and providers accept only these characters.
is_usable = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch
is_short = re.compile(rf"[a-zA-Z0-9]{{{_LENGTH}}}").fullmatch


def short_id(*names: object) -> str:
    """Return an id of nine letters and digits, which every provider accepts; the same for the same names."""
    number = int.from_bytes(hashlib.sha256("\0".join(map(str, names)).encode()).digest())
    letters = []
    for _ in range(_LENGTH):
        number, place = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[place])
    return "".join(letters)


class CallIds:
    """Ids for the calls of one turn, unique within it."""

    def __init__(self, turn: AgentTurn) -> None:
        self._turn = turn.id
        # A turn that was resumed, or continues after a compaction, has made calls before.
        self._used = {call.id for call in _calls(turn.messages)}

    def take(self, wanted: str) -> str:
        """Return the id that the model sent, or another one if that is missing, used or malformed."""
        taken, number = wanted, len(self._used)
        while not is_usable(taken) or taken in self._used:
            taken, number = short_id(self._turn, number), number + 1
        self._used.add(taken)
        return taken


class SentIds:
    """The ids under which a provider knows the calls of a conversation: unique, and of a form that it accepts.

    An id depends on nothing that follows its call, so every later request repeats it.
    """

    def __init__(self, accepts: Callable[[str], object]) -> None:
        self._accepts = accepts
        self._open: dict[str, str] = {}
        self._used: set[str] = set()

    @property
    def waiting(self) -> bool:
        """Whether a call has no result yet."""
        return bool(self._open)

    def open(self, turn: TurnId | None, id: str) -> str:
        """Return the id to send for a call."""
        sent, number = id, 0
        while sent in self._used or not self._accepts(sent):
            sent, number = short_id(turn, id, number), number + 1
        self._used.add(sent)
        self._open[id] = sent
        return sent

    def close(self, id: str) -> str:
        """Return the id to send for the result of a call."""
        return self._open.pop(id)


def _calls(messages: Iterable[Message]) -> Iterable[ToolCall]:
    return (part for message in messages for part in message.parts if isinstance(part, ToolCall))
