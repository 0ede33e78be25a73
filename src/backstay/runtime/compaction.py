"""Compaction: the policy by which windows that are too long for their model are followed by shorter ones."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from backstay.agents.adapters import AgentLike
from backstay.agents.summarising import extractive
from backstay.errors import ConfigError
from backstay.model.message import Message


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """When and how windows are compacted. Sizes are tokens, times seconds.

    A window is compacted when it takes more than `threshold` of `budget`. Its last messages, up to `keep` tokens, stay
    as they are; the `summariser`, an agent, is asked for the gist of the rest. What a window takes is what the agent
    reported as usage, or what `tokens` counts, or an estimate. After a failure a session is left alone for `pause`, and
    twice as long after each further one.
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
                f"a compaction cannot keep {self.keep:,} of {self.budget:,} tokens at a threshold of {self.threshold}",
                hint="Keep less than threshold × budget; the threshold is between 0 and 1.",
            )
        if self.strategy != "rotate" or self.timeout <= 0 or self.pause < 0:
            raise ConfigError(
                f"a compaction cannot go by strategy={self.strategy!r}, timeout={self.timeout}, pause={self.pause}",
                hint="The strategy is 'rotate'; give a timeout of more than 0 and a pause of 0 or more seconds.",
            )

    @property
    def limit(self) -> float:
        """How many tokens a window may take before it is compacted."""
        return self.budget * self.threshold


class Wish(NamedTuple):
    """What somebody asked of one compaction: how many tokens to keep, and what matters most."""

    keep: int | None = None
    focus: str = ""
