"""Following a session: first the stored events after a cursor, then new events as they are written."""

from collections.abc import AsyncGenerator

from backstay.errors import HistoryChanged
from backstay.model.event import Cursor, Event, EventPage, FeedEvent, SessionDeleted
from backstay.model.ids import SessionId
from backstay.runtime.async_store import AsyncStore
from backstay.runtime.events.notifier import Notifier
from backstay.store import commands


async def page_after(store: AsyncStore, session: SessionId, owner: str, cursor: Cursor) -> EventPage:
    """The events after a cursor.

    Raises:
        HistoryChanged: The event at the cursor no longer exists as the reader saw it.
    """
    page = await store.run(commands.events_after(session, cursor, owner=owner))
    if page.gap == "resync" and cursor.number:
        raise HistoryChanged(f"{session} no longer has event {cursor.number} as it was read")
    return page


async def pages(
    store: AsyncStore, notifier: Notifier, session: SessionId, owner: str, cursor: Cursor
) -> AsyncGenerator[EventPage, None]:
    """The events of a session in pages: replay, then live, in one loop and one order.

    A reader whose cursor is inside a fold gets the fold, which names the numbers that it replaces.

    Raises:
        HistoryChanged: The event at the cursor no longer exists as the reader saw it.
        StoreUnavailable: The app was closed.
    """
    with notifier.subscribe(session, owner) as subscription:
        while True:
            page = await page_after(store, session, owner, cursor)
            cursor = page.next
            yield page
            if not page.more:
                await subscription.wait_past(cursor)


async def follow(
    store: AsyncStore, notifier: Notifier, session: SessionId, owner: str, cursor: Cursor
) -> AsyncGenerator[Event, None]:
    """The events of a session one by one.

    Ends only after the session's deletion, or when the caller stops iterating.
    """
    async for page in pages(store, notifier, session, owner, cursor):
        for event in page.events:
            yield event
            if isinstance(event.body, SessionDeleted):
                return


async def follow_all(
    store: AsyncStore, notifier: Notifier, owner: str, position: int | None
) -> AsyncGenerator[FeedEvent, None]:
    """The events of all sessions of an owner, after a position or from now on. Never ends by itself."""
    with notifier.subscribe_all() as changed:
        while True:
            # Clear before the read: a write during the read sets the event again, and is not missed.
            changed.clear()
            page = await store.run(commands.feed(position, owner=owner))
            for event in page.events:
                yield event
            position = page.next
            if not page.more and not notifier.closed:
                await changed.wait()
