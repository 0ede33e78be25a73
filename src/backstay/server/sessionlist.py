"""The list of sessions, page by page, as clients see it."""

import re

import msgspec

from backstay.model.ids import SessionId
from backstay.model.session import Session, SessionCursor, SessionFilter, SessionPage
from backstay.runtime.owned import Owned
from backstay.server.problems import invalid
from backstay.store.port import ANY, Store

_CURSOR = re.compile(r"([0-9]{1,18})\.(ses_[0-9a-z]{26})", re.ASCII)


class SessionList(msgspec.Struct, frozen=True, kw_only=True):
    """Some sessions, newest first; `next` asks for those after them."""

    sessions: tuple[Session, ...]
    next: str | None


async def read_list(owned: Owned, filter: SessionFilter, after: str | None, limit: int) -> SessionList:
    """A page of the owner's sessions."""
    cursor = None if after is None else _decoded(after)
    return _spelled(await owned.read(Store.list, filter=filter, after=cursor, limit=limit))


async def first_page(owned: Owned) -> tuple[int, SessionList]:
    """The top of the list, and a position of the feed from which on no change of it can be missed."""
    position = (await owned.read(Store.feed, None)).next
    return position, await read_list(owned, ANY, None, 50)


def _spelled(page: SessionPage) -> SessionList:
    following = None if page.next is None else f"{page.next.active_at}.{page.next.id}"
    return SessionList(sessions=page.sessions, next=following)


def _decoded(text: str) -> SessionCursor:
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise invalid(f"after is {text[:60]!r}", hint="Pass `next` of the page before, unchanged.")
    return SessionCursor(active_at=int(found[1]), id=SessionId(found[2]))
