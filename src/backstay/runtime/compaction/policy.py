"""The compaction policy: when a window is too long for its model, and how the next one is made."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from backstay.agents.adapters import AgentLike
from backstay.agents.summariser import extractive
from backstay.errors import ConfigError
from backstay.model.message import Message


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """When and how windows are compacted.

    A window is compacted when its size reaches `threshold * budget`. The size is the usage that the agent reported, or
    the sum of `tokens` over its messages, or an estimate.

    Args:
        budget: The size of the model's context window, in tokens.
        threshold: The fraction of the budget at which a window is compacted; above 0, at most 1.
        keep: How many tokens of the last messages stay unchanged (the tail); less than `threshold * budget`.
        tokens: Counts the tokens of one message; None estimates them from the length of the text.
        summariser: The agent that writes the summary of the messages before the tail.
        strategy: Always "rotate": the session continues in a new window.
        timeout: Seconds that the summariser may take.
        pause: Seconds without another attempt after a failure; doubled after each further failure, up to an hour.

    Raises:
        ConfigError: A value is out of range.
    """

    budget: int = 100_000
    threshold: float = 0.8
    keep: int = 20_000
    tokens: Callable[[Message], int] | None = None
    summariser: AgentLike = extractive
    strategy: Literal["rotate"] = "rotate"
    timeout: float = 120.0
    pause: float = 30.0

    def __post_init__(self) -> None:
        if not (self.budget > 0 and 0 < self.threshold <= 1 and 0 <= self.keep < self.limit):
            raise ConfigError(
                f"cannot keep {self.keep:,} of {self.budget:,} tokens with a threshold of {self.threshold}",
                hint="Keep less than threshold × budget; the threshold is between 0 and 1.",
            )
        if self.strategy != "rotate" or self.timeout <= 0 or self.pause < 0:
            raise ConfigError(
                f"invalid compaction: strategy={self.strategy!r}, timeout={self.timeout}, pause={self.pause}",
                hint="The strategy is 'rotate'; give a timeout of more than 0 and a pause of 0 or more seconds.",
            )

    @property
    def limit(self) -> float:
        """The number of tokens above which a window is compacted."""
        return self.budget * self.threshold


class CompactionRequest(NamedTuple):
    """Options of one requested compaction: tokens to keep (None: those of the policy), and the topic to preserve."""

    keep: int | None = None
    focus: str = ""
