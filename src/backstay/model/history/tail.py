"""The tail: the messages that a compaction keeps unchanged."""

from collections.abc import Callable, Sequence
from itertools import accumulate

from backstay.model.message import Message

CountTokens = Callable[[Message], int]


def tail_of(messages: Sequence[Message], keep: int, count_tokens: CountTokens, input: int | None = None) -> int:
    """The index at which the tail of at most `keep` tokens begins; 0 if there is nothing to summarise.

    The last input and everything after it are always in the tail, however long. A tool call is never separated from its
    result. If possible, the tail begins with an input. Summaries of earlier compactions are not summarised on their
    own. With `input`, the tail begins at this index at the latest, because a resumed turn may have been steered since.
    """
    latest = _last_input(messages) if input is None else min(input, _last_input(messages))
    indexes = [index for index in range(1, latest + 1) if messages[index].role != "tool"]
    weights = list(accumulate(map(count_tokens, reversed(messages))))
    fitting = [index for index in indexes if weights[len(messages) - index - 1] <= keep]
    inputs = [index for index in fitting if messages[index].role == "user"]
    begin = (inputs or fitting or indexes[-1:] or [0])[0]
    return begin if begin > _summaries(messages) else 0


def _last_input(messages: Sequence[Message]) -> int:
    """The index of the last message of a person; of the last message if there is none."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].role == "user":
            return index
    return len(messages) - 1


def _summaries(messages: Sequence[Message]) -> int:
    """The number of summaries at the beginning."""
    return next((index for index, message in enumerate(messages) if message.role != "summary"), len(messages))
