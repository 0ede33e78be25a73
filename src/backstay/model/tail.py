"""The tail: what a compaction keeps word for word."""

from collections.abc import Callable, Sequence
from itertools import accumulate

from backstay.model.message import Message

Weigh = Callable[[Message], int]


def tail_of(messages: Sequence[Message], keep: int, weigh: Weigh, input: int | None = None) -> int:
    """Where the tail of at most `keep` tokens begins; 0 if there is nothing that could be left behind.

    The last input and what follows it are always in the tail, however long; a tool call is never parted from its
    result; where it can, the tail begins with an input. What earlier compactions wrote is not left behind on its own.
    With `input`, the tail begins there at the latest: a turn that goes on for another was steered since, perhaps.
    """
    latest = _last_input(messages) if input is None else min(input, _last_input(messages))
    places = [place for place in range(1, latest + 1) if messages[place].role != "tool"]
    weights = list(accumulate(map(weigh, reversed(messages))))
    fitting = [place for place in places if weights[len(messages) - place - 1] <= keep]
    inputs = [place for place in fitting if messages[place].role == "user"]
    begin = (inputs or fitting or places[-1:] or [0])[0]
    return begin if begin > _summaries(messages) else 0


def _last_input(messages: Sequence[Message]) -> int:
    """The place of the last thing a person said; of the last message if nobody said anything."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].role == "user":
            return place
    return len(messages) - 1


def _summaries(messages: Sequence[Message]) -> int:
    """How many messages at the beginning were written by compactions."""
    return next((place for place, message in enumerate(messages) if message.role != "summary"), len(messages))
