"""Following: the story after a cursor, then what is added to it, for as long as somebody listens."""

from collections.abc import AsyncGenerator

from backstay.errors import StoryChanged
from backstay.model.event import Cursor, Event, EventPage, FeedEvent, SessionDeleted
from backstay.model.ids import SessionId
from backstay.runtime.crossing import Crossing
from backstay.runtime.pulse import Pulse


async def pages(
    crossing: Crossing, pulse: Pulse, session: SessionId, owner: str, cursor: Cursor
) -> AsyncGenerator[EventPage, None]:
    """The story in pages: replay, then live. One loop, one order.

    A reader inside a fold gets the fold, which says which numbers it stands for. One who saw what no longer exists gets
    `StoryChanged`.
    """
    with pulse.watch(session, owner) as watch:
        while True:
            page = await crossing.read(crossing.store.events_after, session, cursor, owner=owner)
            if page.gap == "resync" and cursor.number:
                raise StoryChanged(f"{session} has no event {cursor.number} as it was seen")
            cursor = page.next
            yield page
            if not page.more:
                await watch.beyond(cursor.number)


async def follow(
    crossing: Crossing, pulse: Pulse, session: SessionId, owner: str, cursor: Cursor
) -> AsyncGenerator[Event, None]:
    """The story event by event. Ends only with the session's deletion, or when nobody listens."""
    async for page in pages(crossing, pulse, session, owner, cursor):
        for event in page.events:
            yield event
            if isinstance(event.body, SessionDeleted):
                return


async def follow_all(
    crossing: Crossing, pulse: Pulse, owner: str, position: int | None
) -> AsyncGenerator[FeedEvent, None]:
    """What is written to any of the owner's sessions, after a position or from now on; never ends by itself."""
    with pulse.listen() as beat:
        while True:
            beat.clear()
            page = await crossing.read(crossing.store.feed, position, owner=owner)
            for event in page.events:
                yield event
            position = page.next
            if not page.more and not pulse.closed:
                await beat.wait()
