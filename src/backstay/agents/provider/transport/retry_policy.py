"""Back-off: whether and when to retry a request to a provider."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from itertools import count

import msgspec

from backstay.agents.provider.transport.provider_errors import ProviderFault
from backstay.agents.provider.transport.stream_chunk import ChunkT
from backstay.errors import AgentError


class ProviderBackoff(msgspec.Struct, frozen=True, kw_only=True):
    """Retry delays grow from `base` to `cap` seconds. Each is multiplied by a random number, to spread many clients.

    Attributes:
        retries: The highest number of retries.
        base: The first delay, in seconds.
        cap: The longest delay, in seconds.
        max_retry_after: The longest accepted delay of a provider (Retry-After); if it requests more, do not retry.
    """

    retries: int = 4
    base: float = 0.5
    cap: float = 8.0
    max_retry_after: float = 60.0

    def wait(self, attempt: int, *, requested: float | None, chance: float) -> float | None:
        """Return the seconds before the next attempt, or None to give up.

        Args:
            attempt: The number of the failed attempt; the first is 0.
            requested: The delay that the provider requested, in seconds.
            chance: A random number from 0 to 1.
        """
        if attempt >= self.retries or (requested or 0.0) > self.max_retry_after:
            return None
        growing = min(self.cap, self.base * 2**attempt)
        return growing * chance if requested is None else requested + self.base * chance


class RetryPolicy:
    """Retries after a transient fault, but never after the model's first output."""

    def __init__(
        self, backoff: ProviderBackoff, pause: Callable[[float], Awaitable[None]], chance: Callable[[], float]
    ) -> None:
        self._backoff, self._pause, self._chance = backoff, pause, chance

    async def chunks(self, request_chunks: Callable[[], AsyncGenerator[ChunkT, None]]) -> AsyncGenerator[ChunkT, None]:
        """Yield the chunks of one answer; raise the error of the last attempt."""
        for attempt in count():
            begun = False
            try:
                async with aclosing(request_chunks()) as chunks:
                    async for chunk in chunks:
                        begun = begun or chunk.has_output
                        yield chunk
                return
            except ProviderFault as fault:
                wait = None if begun else self._wait(attempt, fault)
                if wait is None:
                    raise _final(fault.error, attempt, begun=begun) from fault
            await self._pause(wait)

    def _wait(self, attempt: int, fault: ProviderFault) -> float | None:
        if not fault.passing:
            return None
        return self._backoff.wait(attempt, requested=fault.wait, chance=self._chance())


def _final(error: AgentError, attempt: int, *, begun: bool) -> AgentError:
    """Return the error with the number of attempts, or that it happened in the middle of the answer."""
    when = ", in the middle of the answer" if begun else f", {attempt + 1} times in a row" if attempt else ""
    return type(error)(f"{error.args[0]}{when}", hint=error.hint)
