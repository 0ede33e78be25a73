"""The delay between two polls of the store. It ends by itself; `wake()` ends it early."""

import asyncio

# Wake-ups shorten the delay at most this often: under constant writes, plain polling is as quick.
MIN_DELAY = 0.025


class PollDelay:
    """A polling delay. `wake()` ends it early, `end()` ends it for good; without either it takes its full time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._woken, self._ended = asyncio.Event(), asyncio.Event()
        self._earliest = 0.0

    def wake(self) -> None:
        """End the current delay early, or the next one if no task waits now."""
        self._woken.set()

    def end(self) -> None:
        """End the current delay and all later ones at once."""
        self._ended.set()
        self._woken.set()

    async def wait(self) -> None:
        """Wait until the next poll is due. A `wake()` between two waits ends the second one."""
        clock = asyncio.get_running_loop().time
        due = clock() + self._seconds
        # In this first part only `end()` counts: however many writes wake the poller, it polls at most this often.
        if await _until(self._ended, min(due, self._earliest)):
            return
        if await _until(self._woken, due):
            self._earliest = clock() + MIN_DELAY
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
