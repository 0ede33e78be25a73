"""Events: one stream per client, for a chosen set of sessions and for the list of all."""

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from backstay.model.event import UNSEEN, Cursor
from backstay.model.ids import SessionId, check_session_id
from backstay.server.call import Answer, Call, Nothing
from backstay.server.cursor import MOST, Place, decode
from backstay.server.operation import AnyOperation, Operation
from backstay.server.problems import invalid
from backstay.server.stream import EventStream
from backstay.store.port import Store

_WANTED = re.compile(r"(ses_[0-9a-z]{26})(?::([0-9]{1,18}))?", re.ASCII)


class FollowQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which sessions, each from its beginning or after a number (`ses_…:42`); whether the list too; from where on.

    `Last-Event-ID` beats `after`: a browser that comes back repeats the first address and adds the newer header.
    """

    sessions: Annotated[str, Meta(max_length=MOST)] = ""
    feed: bool = False
    after: Annotated[str, Meta(max_length=MOST)] = ""


async def follow(call: Call[Nothing, FollowQuery]) -> Answer:
    """Tell what happens, from where the client stands."""
    wanted = _wanted(call.query.sessions, call.service.settings.sessions_per_stream)
    if not wanted and not call.query.feed:
        raise invalid("nothing is followed", hint="Name sessions, or ask for feed=true.")
    place = await _place(call, wanted)
    stream = EventStream(call.service, call.caller, place, feed=call.query.feed)
    await stream.check()
    return Answer(app=stream)


async def _place(call: Call[Nothing, FollowQuery], wanted: dict[SessionId, Cursor]) -> Place:
    """Where the client stands in what it wants: as the cursor says, and else as it asked."""
    told = call.request.headers.get("last-event-id") or call.query.after
    seen = decode(told) if told else Place(sessions={})
    cursors = {session: seen.sessions.get(session, cursor) for session, cursor in wanted.items()}
    feed = seen.feed if call.query.feed else None
    if feed is not None and feed > (await call.owned.read(Store.feed, None)).next:
        feed = None  # A position that does not exist: the list starts over, with a snapshot.
    return Place(sessions=cursors, feed=feed)


def _wanted(text: str, most: int) -> dict[SessionId, Cursor]:
    found = [_WANTED.fullmatch(part) for part in text.split(",") if part]
    sessions = {
        check_session_id(one[1]): Cursor(fence=UNSEEN, number=int(one[2] or 0)) for one in found if one is not None
    }
    if len(sessions) != len(found):
        raise invalid("sessions is no list of different sessions", hint="Write ses_…,ses_…:42 with commas.")
    if len(sessions) > most:
        raise invalid(f"more than {most} sessions cannot be followed on one stream", hint="Follow those that are open.")
    return sessions


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/api/events",
        name="follow",
        summary="Follow sessions and the list on one stream, resumable at every event.",
        run=follow,
        body=Nothing,
        query=FollowQuery,
        answer=str,
        problems=(400, 404),
        media_type="text/event-stream",
    ),
)
