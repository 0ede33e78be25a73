"""A turn as its sender sees it: its events as they happen, its outcome, and a way to stop it."""

import asyncio
from collections.abc import AsyncGenerator

from backstay.errors import InvalidPayload, NotFound
from backstay.model.event import UNSEEN, Cursor, Event, EventPage, SessionDeleted, TurnEnded, TurnFolded
from backstay.model.ids import SessionId, TurnId
from backstay.model.turn import Call, Outcome, Turn
from backstay.runtime.desk import Desk
from backstay.runtime.follow import pages
from backstay.store.port import Store


class TurnHandle:
    """A turn that was accepted. Everything here can be asked in any process, also after a restart."""

    def __init__(
        self,
        desk: Desk,
        turn: Turn,
        owner: str,
        *,
        repeated: bool = False,
        forked_from: SessionId | None = None,
    ) -> None:
        self._desk, self._accepted, self._owner = desk, turn, owner
        self.repeated, self.forked_from = repeated, forked_from

    @property
    def id(self) -> TurnId:
        """The turn's id."""
        return self._accepted.id

    @property
    def session(self) -> SessionId:
        """The session it belongs to: another one than asked for, if it was sent to a fork."""
        return self._accepted.session

    async def read(self) -> Turn:
        """The turn as it is now."""
        crossing = self._desk.crossing
        return await crossing.read(crossing.store.turn, self.id, owner=self._owner)

    async def events(self, after: int | None = None) -> AsyncGenerator[Event, None]:
        """The turn's story: replayed from its beginning, or after an event's number, then live until it ends."""
        if after is not None and type(after) is not int:
            raise InvalidPayload(f"after is {after!r}", hint="Pass the number of an event.")
        number = max(self._accepted.event - 1, after or 0)
        crossing, start = self._desk.crossing, Cursor(fence=UNSEEN, number=number)
        if after is not None and await self._is_told_before(after):
            return
        async for page in pages(crossing, self._desk.pulse, self.session, self._owner, start):
            for event in self._own(page):
                yield event
                if isinstance(event.body, TurnEnded | TurnFolded) and event.body.outcome is not None:
                    return
            if any(isinstance(event.body, SessionDeleted) for event in page.events):
                return
            if not page.more and await self._is_over():
                # It ended just now, or before the reader came: in either case this is all that is left to tell.
                async for event in self._rest(page.next):
                    yield event
                return

    async def _rest(self, cursor: Cursor) -> AsyncGenerator[Event, None]:
        """What the story of an ended turn still has after a cursor."""
        crossing, more = self._desk.crossing, True
        while more:
            page = await crossing.read(crossing.store.events_after, self.session, cursor, owner=self._owner)
            cursor, more = page.next, page.more
            for event in self._own(page):
                yield event

    async def _is_over(self) -> bool:
        """Whether the turn has ended, or went with its session."""
        try:
            return (await self.read()).state == "ended"
        except NotFound:
            return True

    async def _is_told_before(self, number: int) -> bool:
        """Whether the turn has ended and this is the last number of the session's story."""
        crossing = self._desk.crossing
        if not await self._is_over():
            return False
        heads = await crossing.read(crossing.store.heads, [(self.session, self._owner)])
        return heads.get(self.session, 0) == number

    def _own(self, page: EventPage) -> list[Event]:
        return [event for event in page.events if event.turn == self.id]

    async def outcome(self) -> Outcome:
        """How the turn ended; waits until it has."""
        with self._desk.pulse.watch(self.session, self._owner, words=False) as watch:
            while True:
                seen = watch.head
                turn = await self.read()
                if turn.outcome is not None:
                    return turn.outcome
                await watch.beyond(seen)

    async def cancel(self) -> Outcome:
        """Ask the turn to stop, wherever it runs. If its holder does not answer in time, it is fenced off."""
        crossing = self._desk.crossing
        await crossing.write(Store.cancel, self.id, owner=self._owner)
        try:
            return await asyncio.wait_for(self.outcome(), self._desk.timing.grace * 2)
        except TimeoutError:
            await crossing.write(Store.cancel, self.id, owner=self._owner, take=True)
        return await self.outcome()

    async def calls(self) -> tuple[Call, ...]:
        """Its tool calls and what is known of their effects."""
        crossing = self._desk.crossing
        return await crossing.read(crossing.store.calls, self.id, owner=self._owner)

    async def approve(self, call: str, *, arguments_hash: str | None = None) -> Call:
        """Allow a tool call that asked."""
        return await self._desk.crossing.write(
            Store.approve, self.id, call, owner=self._owner, arguments_hash=arguments_hash
        )

    async def deny(self, call: str, *, arguments_hash: str | None = None) -> Call:
        """Forbid a tool call that asked."""
        return await self._desk.crossing.write(
            Store.deny, self.id, call, owner=self._owner, arguments_hash=arguments_hash
        )
