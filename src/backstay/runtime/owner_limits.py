"""Limits per owner in one process: running turns, live agents that are kept, and their processes."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from backstay.errors import ConfigError, QuotaExceeded


class OwnerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The resources that one owner may use in one process. None means no limit.

    Args:
        running_turns: Turns that run at once. Further turns wait in their sessions until one of these ends.
        live_agents: Live agents that are kept between turns. The least recently used one is closed for a new one.
        agent_processes: Processes of live agents, in use or kept. A turn waits until one of them ends.

    Raises:
        ConfigError: A limit is less than 1.
    """

    running_turns: int | None = None
    live_agents: int | None = None
    agent_processes: int | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise ConfigError(f"{name} per owner is {limit}", hint="Give 1 or more, or None for no limit.")


class RunningTurns:
    """The number of turns of each owner that run in this process or are about to start."""

    def __init__(self, limit: int | None, on_capacity: Callable[[], None]) -> None:
        self._limit, self._on_capacity = limit, on_capacity
        self._counts: Counter[str] = Counter()

    def is_full(self, owner: str) -> bool:
        """Whether this owner may not start another turn here now."""
        return self._limit is not None and self._counts[owner] >= self._limit

    def full_owners(self) -> tuple[str, ...]:
        """The owners that may not start another turn here now."""
        if self._limit is None:
            return ()
        return tuple(owner for owner, count in self._counts.items() if count >= self._limit)

    def require_room(self, owner: str) -> None:
        """Raise `QuotaExceeded` if this owner may not start another turn here now."""
        if self.is_full(owner):
            raise QuotaExceeded(
                f"{owner} already runs {self._counts[owner]} turns", hint="Wait until one of them ends."
            )

    def add(self, owner: str) -> None:
        """Count a turn that starts."""
        self._counts[owner] += 1

    def remove(self, owner: str) -> None:
        """Stop counting a turn that has ended. If its owner was full, its waiting turns can be claimed now."""
        was_full = self.is_full(owner)
        self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner]
        if was_full:
            self._on_capacity()

    @contextmanager
    def reserved(self, owner: str) -> Iterator[bool]:
        """Inside the block, reserve capacity for one turn; yields whether there was any."""
        if self.is_full(owner):
            yield False
            return
        self.add(owner)
        try:
            yield True
        finally:
            self.remove(owner)
