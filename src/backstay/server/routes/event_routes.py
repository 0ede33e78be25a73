"""The event stream: one per client, for a set of sessions and for the session list."""

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from backstay.model.event import UNSEEN, Cursor
from backstay.model.ids import SessionId, check_session_id
from backstay.server.http.api_request import ApiRequest, ApiResponse, NoInput
from backstay.server.http.operation import AnyOperation, Operation
from backstay.server.http.problems import invalid
from backstay.server.sse.event_stream import EventStream
from backstay.server.sse.frames import FRAMES
from backstay.server.sse.stream_cursor import MOST, StreamPosition, decode
from backstay.store import commands

_WANTED = re.compile(r"(ses_[0-9a-z]{26})(?::([0-9]{1,18}))?", re.ASCII)


class FollowQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sessions to follow, each from its beginning or after an event (`ses_…:42`); whether to follow the list too.

    `after` is a cursor. `Last-Event-ID` takes precedence: a browser that reconnects repeats the URL and adds the
    header.
    """

    sessions: Annotated[str, Meta(max_length=MOST)] = ""
    feed: bool = False
    after: Annotated[str, Meta(max_length=MOST)] = ""


async def follow(call: ApiRequest[NoInput, FollowQuery]) -> ApiResponse:
    """Open the stream at the client's position."""
    wanted = _wanted(call.query.sessions, call.service.settings.sessions_per_stream)
    if not wanted and not call.query.feed:
        raise invalid("neither `sessions` nor `feed` was given", hint="Pass `sessions`, or feed=true.")
    place = await _place(call, wanted)
    stream = EventStream(call.service, call.caller, place, feed=call.query.feed)
    await stream.check()
    return ApiResponse(app=stream)


async def _place(call: ApiRequest[NoInput, FollowQuery], wanted: dict[SessionId, Cursor]) -> StreamPosition:
    """The client's position in each session and in the list: that of its cursor, otherwise that of its query."""
    last_id = call.request.headers.get("last-event-id") or call.query.after
    seen = decode(last_id) if last_id else StreamPosition(sessions={})
    cursors = {session: seen.sessions.get(session, cursor) for session, cursor in wanted.items()}
    feed = seen.feed if call.query.feed else None
    if feed is not None and feed > (await call.run(commands.feed(None, owner=call.owner))).next:
        feed = None  # The position does not exist: start the list again with a snapshot.
    return StreamPosition(sessions=cursors, feed=feed)


def _wanted(text: str, most: int) -> dict[SessionId, Cursor]:
    found = [_WANTED.fullmatch(part) for part in text.split(",") if part]
    sessions = {
        check_session_id(one[1]): Cursor(fence=UNSEEN, number=int(one[2] or 0)) for one in found if one is not None
    }
    if len(sessions) != len(found):
        raise invalid(
            "`sessions` must be a list of different session ids",
            hint="Separate session ids with commas: ses_…,ses_…:42",
        )
    if len(sessions) > most:
        raise invalid(f"one stream can follow at most {most} sessions", hint="Follow only the sessions that are shown.")
    return sessions


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/api/events",
        name="follow",
        summary="Follow sessions and the list on one stream, resumable at every event.",
        run=follow,
        body=NoInput,
        query=FollowQuery,
        answer=str,
        problems=(400, 404),
        media_type="text/event-stream",
        frames=FRAMES,
    ),
)
