"""Paging: lists of items as this wire has them, read from the end or the beginning, a page at a time."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from backstay.errors import NotFound
from backstay.model.ids import SessionId
from backstay.model.message import Message
from backstay.runtime.owned import Owned
from backstay.server.openai.items import Item, Value, items_of
from backstay.server.openai.names import spot_named
from backstay.store.port import Store

# How many messages are read at once: a page of items is seldom more.
STEP = 50


class ListQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which items: the newest ones unless asked otherwise. There is nothing more that could be included."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None
    include: str | None = msgspec.field(default=None, name="include[]")


class ItemQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """There is nothing more that could be included."""

    include: str | None = msgspec.field(default=None, name="include[]")


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some items, and whether there are more."""

    object: str = "list"
    data: list[dict[str, Any]]  # Any: an item is whatever JSON its type says
    first_id: str | None
    last_id: str | None
    has_more: bool


def page_of(values: Sequence[Value], limit: int) -> Page:
    """The first items of these, which are in the order that was asked for."""
    shown = [*values[:limit]]
    return Page(
        data=shown,
        first_id=str(shown[0]["id"]) if shown else None,
        last_id=str(shown[-1]["id"]) if shown else None,
        has_more=len(values) > limit,
    )


def pick(values: Sequence[Value], query: ListQuery) -> Page:
    """A page of items that are all at hand, oldest first."""
    ordered = [*values] if query.order == "asc" else [*reversed(values)]
    if query.after is not None:
        names = [value["id"] for value in ordered]
        if query.after not in names:
            raise NotFound(f"there is no item {query.after[:64]!r} here", hint="Pass the last id of the page before.")
        ordered = ordered[names.index(query.after) + 1 :]
    return page_of(ordered, query.limit)


class Shelf:
    """The items of one session, read as far as they are asked for."""

    def __init__(self, owned: Owned, session: SessionId) -> None:
        self._owned, self._session = owned, session

    async def page(self, query: ListQuery) -> Page:
        """A page of the session's items."""
        start = None if query.after is None else await self.find(query.after)
        found: list[Item] = []
        forward = query.order == "asc"
        length = (await self._owned.read(Store.session, self._session)).length
        low = high = 0 if forward else length
        if start is not None:
            low = high = start.position if forward else await self._after_results(start.position + 1, length)
        while len(found) <= query.limit and (high < length if forward else low > 0):
            low, high = await self._step(low, high, length, forward=forward)
            items = items_of(await self._read(low, high))
            found += items if forward else reversed(items)
            found = found if start is None else _beyond(found, start)
            low, high = (high, high) if forward else (low, low)
        return page_of([item.value for item in found], query.limit)

    async def find(self, name: str) -> Item:
        """The item of this name; `NotFound` if the session does not read it now."""
        spot = spot_named(name)
        position = await self._owned.read(Store.place, self._session, spot.message)
        end = await self._after_results(position + 1, position + STEP)
        items = items_of(await self._read(position, end))
        found = next((item for item in items if item.spot == spot and item.name == name), None)
        if found is None:
            raise NotFound(f"there is no item {name[:64]!r} here", hint="List the items of the conversation.")
        return found

    async def _step(self, low: int, high: int, length: int, *, forward: bool) -> tuple[int, int]:
        """The next stretch of positions. A call is never parted from its results."""
        if forward:
            return low, await self._after_results(min(high + STEP, length), length)
        return await self._before_results(max(low - STEP, 0)), high

    async def _after_results(self, position: int, length: int) -> int:
        """The first position from here on that holds no results."""
        while position < length:
            following = await self._read(position, min(position + STEP, length))
            other = next((message for message in following if message.role != "tool"), None)
            if other is not None or not following:
                return position if other is None else other.position
            position = following[-1].position + 1
        return position

    async def _before_results(self, position: int) -> int:
        """The last position up to here that holds no results."""
        while position > 0:
            earlier = await self._read(max(position + 1 - STEP, 0), position + 1)
            other = next((message for message in reversed(earlier) if message.role != "tool"), None)
            if other is not None or not earlier:
                return position if other is None else other.position
            position = earlier[0].position - 1
        return 0

    async def _read(self, low: int, high: int) -> tuple[Message, ...]:
        after = None if low == 0 else low - 1
        page = await self._owned.read(Store.messages, self._session, after=after, before=high)
        return page.messages


def _beyond(found: list[Item], start: Item) -> list[Item]:
    """What comes after an item, if it is among these."""
    spots = [item.spot for item in found]
    return found[spots.index(start.spot) + 1 :] if start.spot in spots else found
