"""The delay between two polls of the store. It ends by itself; `wake()` ends it early."""

import asyncio
import math

# After a poll, wake-ups count only after a rest of this many times its duration: under constant writes, polling takes a
# small part of the loop's time. A slow store, or a busy loop, is polled less often.
DELAY_FACTOR = 4
# A delay that follows from the duration is not longer: plain polling is as quick.
LONGEST_DELAY = 0.025


class PollDelay:
    """A polling delay. `wake()` ends it early, `end()` ends it for good; without either it takes its full time.

    Args:
        seconds: The full time.
        least: The shortest time between two delays that `wake()` ends, so that many wake-ups cost few polls.
    """

    def __init__(self, seconds: float, least: float = 0.0) -> None:
        self._seconds, self._least = seconds, least
        self._woken_at = -math.inf
        self._woken, self._ended = asyncio.Event(), asyncio.Event()

    def wake(self) -> None:
        """End the current delay early, or the next one if no task waits now."""
        self._woken.set()

    def end(self) -> None:
        """End the current delay and all later ones at once."""
        self._ended.set()
        self._woken.set()

    async def wait(self, took: float = 0.0) -> None:
        """Wait until the next poll is due. A `wake()` between two waits ends the second one.

        Args:
            took: How many seconds the last poll took; 0 if it found work and the next may follow at once.
        """
        time = asyncio.get_running_loop().time
        now = time()
        due = now + self._seconds
        rest = max(now + min(DELAY_FACTOR * took, LONGEST_DELAY), self._woken_at + self._least)
        # In this first part only `end()` counts: however many writes wake the poller, it rests between two polls.
        if not await _until(self._ended, min(due, rest)) and await _until(self._woken, due):
            self._woken_at = time()
        self._woken.clear()


async def _until(event: asyncio.Event, moment: float) -> bool:
    """Wait for the event, at most until the given loop time; returns whether it is set."""
    if not event.is_set() and moment > asyncio.get_running_loop().time():
        try:
            async with asyncio.timeout_at(moment):
                await event.wait()
        except TimeoutError:
            pass
    return event.is_set()
