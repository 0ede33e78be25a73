"""An SSE connection checks the token of its client at the expiry, whichever clock is ahead."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from starlette.types import Message

from backstay.server.auth.authenticator import Caller, digest, new_secret
from backstay.server.sse.sse_connection import SseConnection, TokenInvalid
from backstay.store import commands
from backstay.testing import ManualClock
from tests.server.open_state import open_state


@asynccontextmanager
async def connected(tmp_path: Path, store_clock: ManualClock, own_clock: ManualClock) -> AsyncIterator[SseConnection]:
    """A client whose token expires in a second."""
    async with open_state(tmp_path, clock=store_clock) as service:
        service.clock, hashed = own_clock, digest(new_secret())
        adding = commands.add_token(name="guest", hash=hashed, seconds=1, owner="anna")
        expires_at = (await service.app.owned_by("anna").run(adding)).expires_at
        yield SseConnection(service, Caller(owner="anna", operator=False, hash=hashed, expires_at=expires_at))


async def send(message: Message) -> None:
    """Accept everything at once."""


async def wait_forever(connection: SseConnection) -> None:
    while True:
        await connection.wait(send, asyncio.Event())


async def test_a_stream_ends_at_the_expiry_by_a_store_clock_that_lags(tmp_path: Path) -> None:
    store_clock, own_clock, news = ManualClock(), ManualClock(), asyncio.Event()
    news.set()
    async with connected(tmp_path, store_clock, own_clock) as connection:
        own_clock.advance(1)
        await connection.wait(send, news)
        for _ in range(3):
            # The store still accepts the token. The wait ends for the next check, long before the heartbeat.
            await connection.wait(send, asyncio.Event())
        store_clock.advance(1)
        with pytest.raises(TokenInvalid):
            await wait_forever(connection)


async def test_a_token_that_expires_before_the_first_wait_is_checked_at_once(tmp_path: Path) -> None:
    store_clock, own_clock = ManualClock(), ManualClock()
    async with connected(tmp_path, store_clock, own_clock) as connection:
        for clock in (store_clock, own_clock):
            clock.advance(1)
        with pytest.raises(TokenInvalid):
            await wait_forever(connection)
