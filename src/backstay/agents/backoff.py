"""Back-off: whether and when to ask a provider again."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from itertools import count

import msgspec

from backstay.agents.completion import Chunk
from backstay.agents.faults import Fault
from backstay.errors import AgentError

Chunks = AsyncGenerator[Chunk, None]


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Waits grow from `base` to `cap` seconds, each a random part of its size so that many clients do not meet again.

    A provider that asks for a wait is given at least that, unless it asks for more than `patience`.
    """

    retries: int = 4
    base: float = 0.5
    cap: float = 8.0
    patience: float = 60.0

    def wait(self, attempt: int, *, asked: float | None, chance: float) -> float | None:
        """Seconds before the attempt after this one (the first is 0), or None to give up. `chance` is from 0 to 1."""
        if attempt >= self.retries or (asked or 0.0) > self.patience:
            return None
        growing = min(self.cap, self.base * 2**attempt)
        return growing * chance if asked is None else asked + self.base * chance


class Persistence:
    """Asks again after a passing fault, but never once the model has begun to speak."""

    def __init__(
        self, backoff: Backoff, pause: Callable[[float], Awaitable[None]], chance: Callable[[], float]
    ) -> None:
        self._backoff, self._pause, self._chance = backoff, pause, chance

    async def chunks(self, ask: Callable[[], Chunks]) -> Chunks:
        """The chunks of one answer, or the error that every attempt led to."""
        for attempt in count():
            begun = False
            try:
                async with aclosing(ask()) as chunks:
                    async for chunk in chunks:
                        begun = begun or chunk.speaks
                        yield chunk
                return
            except Fault as fault:
                wait = None if begun else self._wait(attempt, fault)
                if wait is None:
                    raise _final(fault.error, attempt, begun=begun) from fault
            await self._pause(wait)

    def _wait(self, attempt: int, fault: Fault) -> float | None:
        if not fault.passing:
            return None
        return self._backoff.wait(attempt, asked=fault.wait, chance=self._chance())


def _final(error: AgentError, attempt: int, *, begun: bool) -> AgentError:
    """The error with when it happened."""
    when = ", in the middle of the answer" if begun else f", {attempt + 1} times in a row" if attempt else ""
    return type(error)(f"{error.args[0]}{when}", hint=error.advice)
