"""Shared reads: many clients who want the same page at the same time cause one read, and one encoding.

Nothing is kept: a read is shared only while it is under way, and only by those who know of nothing newer than the one
who began it.
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
from backstay.runtime.owned import Owned
from backstay.store.port import Store

T = TypeVar("T")

# A page is in memory once for all who wait for it; messages may be large, so it holds few.
PAGE = 100

_encode = msgspec.json.Encoder().encode

# What happens within a turn and changes nothing that a list of sessions shows.
_UNLISTED = (TextDelta, ThoughtDelta, ToolCalled, ToolReturned, UsageReported, CustomReported, SteeringTaken)


class Told(NamedTuple):
    """A page of a session's story, and each of its events as JSON."""

    page: EventPage
    events: tuple[bytes, ...]


class Change(NamedTuple):
    """A session whose line in the list has changed: the session as it is now, or None if it is gone."""

    position: int
    session: SessionId
    line: bytes | None


class Changes(NamedTuple):
    """What changed in the list up to a position of the feed."""

    changes: tuple[Change, ...]
    next: int
    more: bool


class _Reading(Generic[T]):
    """A read under way, and its end."""

    def __init__(self, task: "asyncio.Task[T]") -> None:
        self.task = task
        self.over = asyncio.Event()


class SharedReads:
    """The reads under way, by what they read."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._under_way: dict[tuple[object, ...], _Reading[Any]] = {}  # Any: each reads something else

    async def story(self, owner: str, session: SessionId, cursor: Cursor, head: int) -> Told:
        """The session's story after a cursor, with at least all that was known at `head`."""
        key = (owner, session, cursor.fence, cursor.number, head)
        return await self._once(key, lambda: self._story(owner, session, cursor))

    async def changes(self, owner: str, position: int, beat: int) -> Changes:
        """What changed in the owner's list after a position, with at least all that was known at `beat`."""
        return await self._once((owner, position, beat), lambda: self._changes(owner, position))

    async def _once(self, key: tuple[object, ...], read: Callable[[], Coroutine[object, object, T]]) -> T:
        reading: _Reading[T] | None = self._under_way.get(key)
        if reading is None:
            reading = self._under_way[key] = _Reading(asyncio.create_task(read()))
            reading.task.add_done_callback(lambda task: self._end(key, task))
        # Not the task itself is awaited: one reader who leaves must not take the page from the others.
        await reading.over.wait()
        return reading.task.result()

    def _end(self, key: tuple[object, ...], task: "asyncio.Task[object]") -> None:
        if not task.cancelled():
            task.exception()  # Somebody has looked at it, even if all who waited have left.
        self._under_way.pop(key).over.set()

    async def _story(self, owner: str, session: SessionId, cursor: Cursor) -> Told:
        page = await self._app.owned_by(owner).read(Store.events_after, session, cursor, limit=PAGE)
        return Told(page, tuple(_encode(event) for event in page.events))

    async def _changes(self, owner: str, position: int) -> Changes:
        owned = self._app.owned_by(owner)
        page = await owned.read(Store.feed, position)
        latest = {line.event.session: line.position for line in page.events if _is_listed(line.event)}
        changes = [Change(place, session, await _line(owned, session)) for session, place in latest.items()]
        return Changes(tuple(sorted(changes)), page.next, page.more)


def _is_listed(event: Event) -> bool:
    """Whether a list shows something else from now on; a tool call that asks a person needs their eye."""
    asks = isinstance(event.body, ToolCalled) and event.body.call.approval
    return asks or not isinstance(event.body, _UNLISTED)


async def _line(owned: Owned, session: SessionId) -> bytes | None:
    try:
        return _encode(await owned.read(Store.session, session))
    except NotFound:
        return None
