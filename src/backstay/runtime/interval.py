"""The interval between two looks at the store: it passes by itself, and a hint makes it shorter."""

import asyncio

# However many hints there are, they are followed this often at most: with news all the time, polling is as quick.
REST = 0.025


class Interval:
    """What somebody waits for who looks again and again. It passes whether or not there are hints."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._hinted, self._ended = asyncio.Event(), asyncio.Event()
        self._rested = 0.0

    def hint(self) -> None:
        """It may be worth looking now."""
        self._hinted.set()

    def end(self) -> None:
        """Nobody shall wait any more."""
        self._ended.set()
        self._hinted.set()

    async def elapse(self) -> None:
        """Until it is time to look again. A hint that comes between two waits ends the next one."""
        clock = asyncio.get_running_loop().time
        due = clock() + self._seconds
        if await _until(self._ended, min(due, self._rested)):
            return
        if await _until(self._hinted, due):
            self._rested = clock() + REST
        self._hinted.clear()


async def _until(event: asyncio.Event, moment: float) -> bool:
    """Whether the event has come by then."""
    if not event.is_set() and moment > asyncio.get_running_loop().time():
        try:
            async with asyncio.timeout_at(moment):
                await event.wait()
        except TimeoutError:
            pass
    return event.is_set()
