"""The cursor of an event stream: a position in each session, and one in the feed.

It is opaque to clients and parsed strictly: it comes back as `Last-Event-ID`, which any client can forge. The server
takes only positions from it, and reads every position as the caller's owner.
"""

import re

import msgspec

from backstay.model.event import UNSEEN, Cursor
from backstay.model.ids import SessionId, check_session_id
from backstay.server.http.problems import Refused

MOST = 65_536
_UNSEEN = "u"
_SHAPE = re.compile(r"(?:[0-9]{1,18})?(?:_[0-9a-z]{26}-(?:u|[0-9]{1,18})-[0-9]{1,18})*", re.ASCII)


class StreamPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The positions of a client; `feed` is None if it does not follow the feed yet."""

    sessions: dict[SessionId, Cursor]
    feed: int | None = None


def encode_part(session: SessionId, cursor: Cursor) -> str:
    """The part of a cursor for one session."""
    fence = _UNSEEN if cursor.fence == UNSEEN else str(cursor.fence)
    return f"_{session[4:]}-{fence}-{cursor.number}"


def encode(feed: int | None, parts: list[str]) -> str:
    """Join the parts of a cursor."""
    return ("" if feed is None else str(feed)) + "".join(parts)


def decode(text: str) -> StreamPosition:
    """Parse a cursor.

    Raises:
        Refused: The text is not a cursor that the server could have written.
    """
    if not text or len(text) > MOST or not _SHAPE.fullmatch(text):
        raise _invalid_cursor()
    feed, *parts = text.split("_")
    sessions = dict(_part(part) for part in parts)
    if len(sessions) != len(parts):
        raise _invalid_cursor()
    return StreamPosition(sessions=sessions, feed=int(feed) if feed else None)


def _part(text: str) -> tuple[SessionId, Cursor]:
    letters, fence, number = text.split("-")
    session = check_session_id(f"ses_{letters}")
    return session, Cursor(fence=UNSEEN if fence == _UNSEEN else int(fence), number=int(number))


def _invalid_cursor() -> Refused:
    return Refused(
        400, "cursor", "invalid cursor", hint="Send the id of the last received event unchanged, or omit it."
    )
