"""The cursor of a multiplexed stream: where its reader stands in each session, and in the feed.

Opaque to clients, and strictly read: it comes back as `Last-Event-ID`, which anybody can forge. Nothing in it is
believed but positions, and every position is looked up for the owner who asks.
"""

import re

import msgspec

from backstay.model.event import UNSEEN, Cursor
from backstay.model.ids import SessionId, check_session_id
from backstay.server.problems import Refused

MOST = 65_536
_UNSEEN = "u"
_SHAPE = re.compile(r"(?:[0-9]{1,18})?(?:_[0-9a-z]{26}-(?:u|[0-9]{1,18})-[0-9]{1,18})*", re.ASCII)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a reader stands; `feed` is None for one who has not begun to follow it."""

    sessions: dict[SessionId, Cursor]
    feed: int | None = None


def spell(session: SessionId, cursor: Cursor) -> str:
    """One session's part of a cursor."""
    fence = _UNSEEN if cursor.fence == UNSEEN else str(cursor.fence)
    return f"_{session[4:]}-{fence}-{cursor.number}"


def encode(feed: int | None, parts: list[str]) -> str:
    """A cursor from the parts of its sessions."""
    return ("" if feed is None else str(feed)) + "".join(parts)


def decode(text: str) -> Place:
    """The place a cursor names, or a refusal: a cursor is exactly what the server wrote, or nothing."""
    if not text or len(text) > MOST or not _SHAPE.fullmatch(text):
        raise _no_cursor()
    feed, *parts = text.split("_")
    sessions = dict(_part(part) for part in parts)
    if len(sessions) != len(parts):
        raise _no_cursor()
    return Place(sessions=sessions, feed=int(feed) if feed else None)


def _part(text: str) -> tuple[SessionId, Cursor]:
    letters, fence, number = text.split("-")
    session = check_session_id(f"ses_{letters}")
    return session, Cursor(fence=UNSEEN if fence == _UNSEEN else int(fence), number=int(number))


def _no_cursor() -> Refused:
    return Refused(
        400, "cursor", "this is no cursor", hint="Send the id of the last event you received, unchanged, or none."
    )
