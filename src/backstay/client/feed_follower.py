"""Follows the events of all sessions of an owner on a server."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from backstay.client import api_calls
from backstay.client.event_follower import frames_of
from backstay.client.server_connection import SILENCE, Connection, Pauses
from backstay.errors import StoreUnavailable
from backstay.model.event import FeedEvent


async def follow_feed(connection: Connection, after: int | None) -> AsyncGenerator[FeedEvent, None]:
    """Yield the events after a position, or from now on. A cut stream is opened again, without end.

    The stream of changed sessions only wakes the reader: events are read from the feed, after the last position.
    """
    position = (await connection.run(api_calls.feed(None))).next if after is None else after
    pauses = Pauses()
    while True:
        try:
            async with aclosing(_changes(connection, position)) as changes:
                async for _ in changes:
                    pauses, more = Pauses(), True
                    while more:
                        page = await connection.run(api_calls.feed(position))
                        for event in page.events:
                            yield event
                        position, more = page.next, page.more
        except StoreUnavailable:
            pass  # Opened again below, at the same position.
        await asyncio.sleep(next(pauses))


async def _changes(connection: Connection, position: int) -> AsyncGenerator[None, None]:
    """Yield once when the stream is open, and after each change of a session."""
    headers = {"accept": "text/event-stream", "last-event-id": str(position)}
    async with connection.stream(
        "GET", "api/events", query={"feed": "true"}, headers=headers, silence=SILENCE
    ) as response:
        yield
        async with aclosing(frames_of(response)) as frames:
            async for name, _ in frames:
                if name:
                    yield
