"""The session list as the API returns it, page by page."""

import re

import msgspec

from backstay.model.ids import SessionId
from backstay.model.session import SessionCursor, SessionFilter, SessionInfo, SessionPage
from backstay.runtime.owner_sessions import OwnerSessions
from backstay.server.http.problems import invalid
from backstay.store import commands
from backstay.store.commands import ANY

_CURSOR = re.compile(r"([0-9]{1,18})\.(ses_[0-9a-z]{26})", re.ASCII)


class SessionList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of sessions, newest first; `next` is the cursor of the following page."""

    sessions: tuple[SessionInfo, ...]
    next: str | None


async def read_list(owned: OwnerSessions, filter: SessionFilter, after: str | None, limit: int) -> SessionList:
    """A page of the owner's sessions."""
    cursor = None if after is None else _decoded(after)
    return _encoded_cursor(
        await owned.run(commands.list_sessions(filter=filter, after=cursor, limit=limit, owner=owned.owner))
    )


async def first_page(owned: OwnerSessions) -> tuple[int, SessionList]:
    """The first page, and a feed position after which no change of this page is missed."""
    position = (await owned.run(commands.feed(None, owner=owned.owner))).next
    return position, await read_list(owned, ANY, None, 50)


def _encoded_cursor(page: SessionPage) -> SessionList:
    following = None if page.next is None else f"{page.next.active_at}.{page.next.id}"
    return SessionList(sessions=page.sessions, next=following)


def _decoded(text: str) -> SessionCursor:
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise invalid(f"invalid cursor {text[:60]!r} in `after`", hint="Pass `next` of the previous page unchanged.")
    return SessionCursor(active_at=int(found[1]), id=SessionId(found[2]))
