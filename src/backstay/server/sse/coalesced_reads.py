"""Coalesced reads: clients that need the same page at the same time share one read and one encoding.

Nothing is cached. Clients share a read only while it runs, and only if they have seen the same change number as the
client that started it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from backstay.errors import NotFound
from backstay.model.event import (
    Cursor,
    CustomReported,
    Event,
    EventPage,
    SteeringTaken,
    TextDelta,
    ThoughtDelta,
    ToolCalled,
    ToolReturned,
    UsageReported,
)
from backstay.model.ids import SessionId
from backstay.runtime.app import App
from backstay.runtime.owner_sessions import OwnerSessions
from backstay.store import commands

T = TypeVar("T")

# The page is in memory once for all clients that wait for it. Messages can be large, so a page has few events.
PAGE = 100

_encode = msgspec.json.Encoder().encode

# Events within a turn that do not change the row of a session list.
_UNLISTED = (TextDelta, ThoughtDelta, ToolCalled, ToolReturned, UsageReported, CustomReported, SteeringTaken)


class EncodedPage(NamedTuple):
    """A page of a session's event log, and each of its events encoded as JSON."""

    page: EventPage
    events: tuple[bytes, ...]


class Change(NamedTuple):
    """A changed row of the session list; `row` is the session as it is now in JSON, or None if it was deleted."""

    position: int
    session: SessionId
    row: bytes | None


class Changes(NamedTuple):
    """The changes of the session list up to the position `next` of the feed."""

    changes: tuple[Change, ...]
    next: int
    more: bool


class _Reading(Generic[T]):
    """A running read and the event that is set when it ends."""

    def __init__(self, task: "asyncio.Task[T]") -> None:
        self.task = task
        self.over = asyncio.Event()


class SharedReads:
    """The running reads, by their keys."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._under_way: dict[tuple[object, ...], _Reading[Any]] = {}  # Any: each read has another result type

    async def events(self, owner: str, session: SessionId, cursor: Cursor, change_number: int) -> EncodedPage:
        """The session's events after a cursor. They include everything that was committed at this change number."""
        key = (owner, session, cursor.fence, cursor.number, change_number)
        return await self._once(key, lambda: self._read_events(owner, session, cursor))

    async def changes(self, owner: str, position: int, change_number: int) -> Changes:
        """The changes of the owner's list after a position, including everything committed at this change number."""
        return await self._once((owner, position, change_number), lambda: self._changes(owner, position))

    async def close(self) -> None:
        """Cancel the reads that outlived their clients, and wait until they have ended."""
        tasks = [reading.task for reading in self._under_way.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _once(self, key: tuple[object, ...], read: Callable[[], Coroutine[object, object, T]]) -> T:
        reading: _Reading[T] | None = self._under_way.get(key)
        if reading is None:
            reading = self._under_way[key] = _Reading(asyncio.create_task(read()))
            reading.task.add_done_callback(lambda task: self._end(key, task))
        # Do not await the task itself: cancelling one waiting client would cancel the read for all.
        await reading.over.wait()
        return reading.task.result()

    def _end(self, key: tuple[object, ...], task: "asyncio.Task[object]") -> None:
        if not task.cancelled():
            task.exception()  # Mark it as retrieved, in case no client waits any more.
        self._under_way.pop(key).over.set()

    async def _read_events(self, owner: str, session: SessionId, cursor: Cursor) -> EncodedPage:
        page = await self._app.owned_by(owner).run(commands.events_after(session, cursor, limit=PAGE, owner=owner))
        return EncodedPage(page, tuple(_encode(event) for event in page.events))

    async def _changes(self, owner: str, position: int) -> Changes:
        owned = self._app.owned_by(owner)
        page = await owned.run(commands.feed(position, owner=owned.owner))
        latest = {entry.event.session: entry.position for entry in page.events if _is_listed(entry.event)}
        changes = [Change(place, session, await _row(owned, session)) for session, place in latest.items()]
        return Changes(tuple(sorted(changes)), page.next, page.more)


def _is_listed(event: Event) -> bool:
    """Whether the event changes the list's row. A tool call that waits for approval does."""
    needs_approval = isinstance(event.body, ToolCalled) and event.body.call.approval
    return needs_approval or not isinstance(event.body, _UNLISTED)


async def _row(owned: OwnerSessions, session: SessionId) -> bytes | None:
    try:
        return _encode(await owned.run(commands.session(session, owner=owned.owner)))
    except NotFound:
        return None
