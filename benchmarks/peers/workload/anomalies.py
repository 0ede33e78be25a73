"""Lost, doubled, torn and split turns in a history that several processes wrote. Pure."""

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

ROLES = ("user", "assistant")


class Anomalies(msgspec.Struct, frozen=True, kw_only=True):
    """How many acknowledged turns a history misses or damages.

    Attributes:
        acknowledged: turns whose write returned without an error.
        lost: none of their messages is in the history.
        torn: some of their messages are missing.
        doubled: a message is there more than once.
        split: all messages are there once, but not next to each other in their order.
        unacknowledged: turns that were rejected, but left messages in the history.
    """

    acknowledged: int
    lost: int = 0
    torn: int = 0
    doubled: int = 0
    split: int = 0
    unacknowledged: int = 0


def count_anomalies(history: Sequence[str], acknowledged: Collection[str], rejected: Collection[str]) -> Anomalies:
    """Count the anomalies in a history of tags such as `2.17/user`, where `2.17` is a turn."""
    stored = Counter(history)
    place = {tag: position for position, tag in enumerate(history)}
    found = Counter(_state(turn, stored, place) for turn in acknowledged)
    left = sum(1 for turn in rejected if any(stored[f"{turn}/{role}"] for role in ROLES))
    return Anomalies(
        acknowledged=len(acknowledged),
        lost=found["lost"],
        torn=found["torn"],
        doubled=found["doubled"],
        split=found["split"],
        unacknowledged=left,
    )


def _state(turn: str, stored: Counter[str], place: dict[str, int]) -> str:
    tags = [f"{turn}/{role}" for role in ROLES]
    counts = [stored[tag] for tag in tags]
    if not any(counts):
        return "lost"
    if not all(counts):
        return "torn"
    if max(counts) > 1:
        return "doubled"
    return "whole" if place[tags[1]] == place[tags[0]] + 1 else "split"
