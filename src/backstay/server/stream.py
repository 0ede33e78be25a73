"""The stream: one client's view of several sessions and of the list, as server-sent events.

Replay and live are one loop: read what follows the cursor, send it, and wait to be woken. Every frame that tells of
something stored carries the cursor after it as its id; nothing else carries an id, so a client that comes back with the
last id it saw misses nothing and gets nothing twice.
"""

import asyncio
from contextlib import ExitStack

import msgspec
from starlette.types import Receive, Scope, Send

from backstay.clock import Clock, SystemClock
from backstay.errors import BackstayError
from backstay.model.event import Cursor, Event, SessionDeleted
from backstay.model.ids import SessionId
from backstay.runtime.owned import Lookout
from backstay.server.caller import Caller
from backstay.server.cursor import Place, encode, spell
from backstay.server.line import Dismissed, Gone, Line
from backstay.server.logs import log
from backstay.server.service import Service
from backstay.server.sessionlist import first_page
from backstay.server.sharing import Change, Told

RETRY_MS = 1_000
WRITE_BYTES = 65_536

_encode = msgspec.json.Encoder().encode


class EventStream:
    """Answers one request with frames for as long as the client listens."""

    def __init__(
        self, service: Service, caller: Caller, place: Place, *, feed: bool, clock: Clock | None = None
    ) -> None:
        self._service, self._caller, self._feed = service, caller, feed
        self._clock = clock or SystemClock()
        self._cursors = dict(place.sessions)
        self._spelled = {session: spell(session, cursor) for session, cursor in self._cursors.items()}
        # What was known of a session when it was last read: nothing newer, nothing to read.
        self._known: dict[SessionId, int] = dict.fromkeys(self._cursors, -1)
        self._position, self._beat = place.feed, -1
        self._line = Line(service, caller)

    async def check(self) -> None:
        """Raise unless every session is the caller's and there is room for another stream: before anything is sent."""
        for session, cursor in self._cursors.items():
            await self._service.reads.story(self._caller.owner, session, cursor, -1)
        self._service.streams.admit(self._caller)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with ExitStack() as stack:
            stack.enter_context(self._service.streams.one_more(self._caller))
            owned = self._service.app.owned_by(self._caller.owner)
            lookout = stack.enter_context(owned.lookout(list(self._cursors), everything=self._feed))
            stack.enter_context(self._service.streams.waking(lookout.news))
            listening = asyncio.create_task(self._line.listen(receive, lookout.news))
            stack.callback(listening.cancel)
            try:
                await self._tell(send, lookout, listening)
            except Gone:
                return
            except Dismissed:
                pass
            except BackstayError as error:
                # The store is away, or closed under us: whoever comes back with the last id goes on from there.
                log.warning("stream ended early", extra={"error": str(error.args[0])})
            await self._line.close(send, b": bye\n\n")

    # --- the loop ---------------------------------------------------------------------------------------------------

    async def _tell(self, send: Send, lookout: Lookout, listening: "asyncio.Task[None]") -> None:
        await self._line.open(send)
        await self._line.write(send, b"retry: %d\n\n" % RETRY_MS)
        while not self._service.streams.closing:
            if listening.done():
                raise Gone
            lookout.news.clear()
            if await self._tell_feed(send, lookout) or await self._tell_stories(send, lookout):
                continue
            if not self._cursors and not self._feed:
                return
            await self._line.wait(send, lookout.news)

    async def _tell_stories(self, send: Send, lookout: Lookout) -> bool:
        """Send what is new in the sessions; whether there may be more."""
        more = False
        for session in list(self._cursors):
            head = lookout.head(session)
            if head > self._known[session]:
                told = await self._service.reads.story(self._caller.owner, session, self._cursors[session], head)
                self._known[session] = -1 if told.page.more else max(head, told.page.next.number)
                await self._send_page(send, session, told)
                more = more or told.page.more
        return more

    async def _send_page(self, send: Send, session: SessionId, told: Told) -> None:
        """The page in writes of a bounded size, each when the socket has taken the one before."""
        batch = Batch()
        if told.page.gap is not None and self._cursors[session].number:
            seen = self._cursors[session].number
            batch.add(_frame(told.page.gap, _encode({"session": session, "seen": seen})))
        for event, data in zip(told.page.events, told.events, strict=True):
            self._stand(session, event.cursor)
            batch.add(_frame("story", data, self._cursor()))
            self._count(event)
            if isinstance(event.body, SessionDeleted):
                self._leave(session)
            if batch.is_full:
                await self._line.write(send, batch.take())
        await self._line.write(send, batch.take())

    async def _tell_feed(self, send: Send, lookout: Lookout) -> bool:
        """Send what is new in the list; whether there may be more."""
        if not self._feed or lookout.beat == self._beat:
            return False
        beat = lookout.beat
        position = self._position if self._position is not None else await self._send_snapshot(send)
        found = await self._service.reads.changes(self._caller.owner, position, beat)
        frames = [self._change(change) for change in found.changes]
        self._position = found.next
        await self._line.write(send, b"".join(frames))
        self._beat = self._beat if found.more else beat
        return found.more

    def _change(self, change: Change) -> bytes:
        self._position = change.position
        if change.line is None:
            return _frame("unlisted", _encode({"id": change.session}), self._cursor())
        return _frame("listed", change.line, self._cursor())

    async def _send_snapshot(self, send: Send) -> int:
        """The top of the list. Its position is older than its lines, so nothing falls between it and what follows."""
        owned = self._service.app.owned_by(self._caller.owner)
        position, page = await first_page(owned)
        self._position = position
        await self._line.write(send, _frame("snapshot", _encode({"feed": page}), self._cursor()))
        return position

    # --- where we stand ---------------------------------------------------------------------------------------------

    def _stand(self, session: SessionId, cursor: Cursor) -> None:
        self._cursors[session] = cursor
        self._spelled[session] = spell(session, cursor)

    def _leave(self, session: SessionId) -> None:
        """Its story is over; its place stays in the cursor, so that whoever comes back is not told again."""
        del self._cursors[session]

    def _cursor(self) -> bytes:
        return encode(self._position, list(self._spelled.values())).encode()

    def _count(self, event: Event) -> None:
        self._service.metrics.events.add()
        self._service.metrics.lag.observe(max(0, self._clock.now() - event.at) / 1000)


class Batch:
    """Frames that go out together."""

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._size = 0

    @property
    def is_full(self) -> bool:
        return self._size >= WRITE_BYTES

    def add(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._size += len(frame)

    def take(self) -> bytes:
        """What has gathered; the next batch begins."""
        taken = b"".join(self._frames)
        self._frames, self._size = [], 0
        return taken


def _frame(name: str, data: bytes, cursor: bytes | None = None) -> bytes:
    """One event of the wire. JSON has no bare line ends, so its data is always one line."""
    head = b"" if cursor is None else b"id: %s\n" % cursor
    return b"%sevent: %s\ndata: %s\n\n" % (head, name.encode(), data)
