"""Pages of items, as the OpenAI-compatible API lists them: from the end or from the beginning."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from backstay.errors import NotFound
from backstay.model.ids import SessionId
from backstay.model.message import Message
from backstay.runtime.owner_sessions import OwnerSessions
from backstay.server.openai.encoding.items import Item, Value, items_of
from backstay.server.openai.openai_ids import position_of_item
from backstay.store import commands

# How many messages are read at once; a page of items rarely needs more.
STEP = 50


class ItemListQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The page to list; by default the newest items. `include` is accepted, but has no effect."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None
    include: str | None = msgspec.field(default=None, name="include[]")


class ItemQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`include` is accepted, but has no effect."""

    include: str | None = msgspec.field(default=None, name="include[]")


class ItemPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of items, and whether there are more."""

    object: str = "list"
    data: list[dict[str, Any]]  # Any: an item is a JSON object whose type defines its content
    first_id: str | None
    last_id: str | None
    has_more: bool


def page_of(values: Sequence[Value], limit: int) -> ItemPage:
    """A page with the first `limit` items; the items are already in the requested order."""
    shown = [*values[:limit]]
    return ItemPage(
        data=shown,
        first_id=str(shown[0]["id"]) if shown else None,
        last_id=str(shown[-1]["id"]) if shown else None,
        has_more=len(values) > limit,
    )


def pick(values: Sequence[Value], query: ItemListQuery) -> ItemPage:
    """A page of items that are all in memory, oldest first."""
    ordered = [*values] if query.order == "asc" else [*reversed(values)]
    if query.after is not None:
        names = [value["id"] for value in ordered]
        if query.after not in names:
            raise NotFound(
                f"item {query.after[:64]!r} does not exist here", hint="Pass the last id of the previous page."
            )
        ordered = ordered[names.index(query.after) + 1 :]
    return page_of(ordered, query.limit)


class SessionItems:
    """The items of one session, read page by page."""

    def __init__(self, owned: OwnerSessions, session: SessionId) -> None:
        self._owned, self._session = owned, session

    async def page(self, query: ItemListQuery) -> ItemPage:
        """List a page of the session's items."""
        start = None if query.after is None else await self.find(query.after)
        found: list[Item] = []
        forward = query.order == "asc"
        length = (await self._owned.run(commands.session(self._session, owner=self._owned.owner))).length
        low = high = 0 if forward else length
        if start is not None:
            low = high = start.position if forward else await self._after_results(start.position + 1, length)
        while len(found) <= query.limit and (high < length if forward else low > 0):
            low, high = await self._step(low, high, length, forward=forward)
            items = items_of(await self._read(low, high))
            found += items if forward else reversed(items)
            found = found if start is None else _after(found, start)
            low, high = (high, high) if forward else (low, low)
        return page_of([item.value for item in found], query.limit)

    async def find(self, name: str) -> Item:
        """The item with this id.

        Raises:
            NotFound: The session's current window does not have it.
        """
        item_position = position_of_item(name)
        position = await self._owned.run(
            commands.message_position(self._session, item_position.message, owner=self._owned.owner)
        )
        end = await self._after_results(position + 1, position + STEP)
        items = items_of(await self._read(position, end))
        found = next((item for item in items if item.item_position == item_position and item.name == name), None)
        if found is None:
            raise NotFound(f"item {name[:64]!r} does not exist here", hint="List the items of the conversation.")
        return found

    async def _step(self, low: int, high: int, length: int, *, forward: bool) -> tuple[int, int]:
        """The next range of positions. It never separates a call from its results."""
        if forward:
            return low, await self._after_results(min(high + STEP, length), length)
        return await self._before_results(max(low - STEP, 0)), high

    async def _after_results(self, position: int, length: int) -> int:
        """The first position from here on that is not a tool result."""
        while position < length:
            following = await self._read(position, min(position + STEP, length))
            other = next((message for message in following if message.role != "tool"), None)
            if other is not None or not following:
                return position if other is None else other.position
            position = following[-1].position + 1
        return position

    async def _before_results(self, position: int) -> int:
        """The last position up to here that is not a tool result."""
        while position > 0:
            earlier = await self._read(max(position + 1 - STEP, 0), position + 1)
            other = next((message for message in reversed(earlier) if message.role != "tool"), None)
            if other is not None or not earlier:
                return position if other is None else other.position
            position = earlier[0].position - 1
        return 0

    async def _read(self, low: int, high: int) -> tuple[Message, ...]:
        after = None if low == 0 else low - 1
        page = await self._owned.run(
            commands.messages(self._session, after=after, before=high, owner=self._owned.owner)
        )
        return page.messages


def _after(found: list[Item], start: Item) -> list[Item]:
    """The items after `start`, if it is among these; otherwise all of them."""
    positions = [item.item_position for item in found]
    return found[positions.index(start.item_position) + 1 :] if start.item_position in positions else found
