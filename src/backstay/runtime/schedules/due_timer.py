"""The due timer of an app: fires due schedules, and computes when the next one is due."""

import logging

from backstay.clock import Clock
from backstay.runtime.async_store import AsyncStore
from backstay.runtime.turns.served_agents import ServedAgents
from backstay.store import Store, commands

log = logging.getLogger("backstay.runtime")

# The pause after a store that failed.
_RETRY = 1_000


class DueTimer:
    """Fires due schedules of all owners. It reads the store when it has changed, and at the next due time.

    The store decides by its own clock whether a schedule is due. The timer only decides when to query it, by two
    clocks: a wall clock that jumps forward makes a schedule due at once, and one that was set back delays none.
    """

    def __init__(self, store: AsyncStore, served: ServedAgents, clock: Clock) -> None:
        self._store, self._served, self._clock = store, served, clock
        self._wall: int | None = None
        self._boot = self._wall_read = self._boot_read = 0
        self._failing = False

    def is_due(self) -> bool:
        """Whether the next due time has come."""
        return self._wall is not None and (self._clock.now() >= self._wall or self._clock.boot() >= self._boot)

    async def fire(self) -> None:
        """Fire the schedules that are due. An error is logged once, and the timer tries again after a second."""
        # Before the store is read: a clock that jumps meanwhile makes the timer query too early, never too late.
        self._wall_read, self._boot_read = self._clock.now(), self._clock.boot()
        try:
            if not len(self._served):
                return
            found = await self._store.run(commands.due_schedules(limit=1))
            if found.due:
                found = await self._store.call(Store.fire_due, self._served)
            if self._failing:
                log.warning("schedules are fired again")
            self._failing = False
        except Exception:
            # Continue after any error: waiting turns are claimed, and the schedules are tried again.
            if not self._failing:
                log.warning("schedules could not be fired", exc_info=True)
            self._failing = True
            self._wait(_RETRY)
        else:
            # More of them are fired after the next poll: waiting turns are claimed in between.
            self._wait(0 if found.due else None if found.next is None else found.next - found.now)

    def _wait(self, milliseconds: int | None) -> None:
        if milliseconds is None:
            self._wall = None
        else:
            self._wall, self._boot = self._wall_read + milliseconds, self._boot_read + milliseconds
