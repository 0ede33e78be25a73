"""Follows a session on a server: over as many connections as it takes, without a gap and without a repeat."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import httpx2
import msgspec

from backstay.client import api_calls
from backstay.client.server_connection import SILENCE, Connection, Pauses, decoded
from backstay.errors import HistoryChanged, StoreUnavailable
from backstay.model.event import UNSEEN, Cursor, Event, SessionDeleted
from backstay.model.ids import SessionId

_LONGEST_FRAME = 64 << 20


class StreamState(msgspec.Struct, frozen=True):
    """The stream is open (`reason` is None), or it was lost and is opened again."""

    reason: str | None = None


async def follow_session(
    connection: Connection, session: SessionId, after: Cursor | int
) -> AsyncGenerator[Event, None]:
    """Yield the events after a cursor, then live; ends with the deletion of the session.

    Raises:
        NotFound: The owner has no such session.
        HistoryChanged: Events that were yielded no longer exist.
    """
    async with aclosing(stream_session(connection, session, after)) as stream:
        async for one in stream:
            if isinstance(one, Event):
                yield one


async def stream_session(
    connection: Connection, session: SessionId, after: Cursor | int
) -> AsyncGenerator[Event | StreamState, None]:
    """Yield events and changes of the stream. A cut stream is opened again after the last event id, without end."""
    position, pauses = _position(session, after), Pauses()
    while True:
        try:
            async with aclosing(_frames(connection, session, position)) as frames:
                async for event in frames:
                    if event is None:
                        pauses = Pauses()
                        yield StreamState()
                        continue
                    position = _position(session, event.cursor)
                    yield event
                    if isinstance(event.body, SessionDeleted):
                        return
            reason = "the server closed the stream"
        except StoreUnavailable as error:
            reason = str(error.args[0])
        yield StreamState(reason)
        await asyncio.sleep(next(pauses))


async def stored_events(connection: Connection, session: SessionId, after: Cursor | int) -> AsyncGenerator[Event, None]:
    """Yield the events that are stored after a cursor, page by page."""
    cursor, more = after if isinstance(after, Cursor) else Cursor(fence=UNSEEN, number=after), True
    while more:
        page = await connection.run(api_calls.events_after(session, cursor))
        cursor, more = page.next, page.more
        for event in page.events:
            yield event


def _position(session: SessionId, after: Cursor | int) -> str:
    """A cursor in the spelling of the event stream. An event that was counted, not seen, has no fence."""
    cursor = after if isinstance(after, Cursor) else Cursor(fence=UNSEEN, number=after)
    fence = "u" if cursor.fence == UNSEEN else str(cursor.fence)
    return f"_{session[4:]}-{fence}-{cursor.number}"


async def _frames(connection: Connection, session: SessionId, position: str) -> AsyncGenerator[Event | None, None]:
    """Yield None when the stream is open, then its events."""
    headers = {"accept": "text/event-stream", "last-event-id": position}
    async with connection.stream(
        "GET", "api/events", query={"sessions": session}, headers=headers, silence=SILENCE
    ) as response:
        yield None
        async with aclosing(frames_of(response)) as frames:
            async for name, data in frames:
                if name == b"resync":
                    raise HistoryChanged
                if name == b"event":
                    yield decoded(data, Event)


async def frames_of(response: httpx2.Response) -> AsyncGenerator[tuple[bytes, bytes], None]:
    """Yield name and data of each frame. Only a line feed ends a line: texts may hold every other line end."""
    rest = bytearray()
    async for piece in response.aiter_raw():
        # The end of a frame may be split between two pieces. The part before that was searched already.
        begin = max(0, len(rest) - 1)
        rest += piece
        if rest.find(b"\n\n", begin) >= 0:
            *whole, left = bytes(rest).split(b"\n\n")
            rest = bytearray(left)
            for block in whole:
                lines = (line.partition(b": ") for line in block.split(b"\n"))
                fields = {name: value for name, _, value in lines}
                yield fields.get(b"event", b""), fields.get(b"data", b"")
        if len(rest) > _LONGEST_FRAME:
            raise StoreUnavailable("the server sent an event that is too large", hint="Check that it is Backstay.")
