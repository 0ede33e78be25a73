"""A turn as its sender sees it: its events as they happen, its outcome, and a way to stop it."""

import asyncio
from collections.abc import AsyncGenerator

from backstay.errors import InvalidPayload, NotFound
from backstay.model.event import START, UNSEEN, Cursor, Event, EventPage, SessionDeleted, TurnEnded, TurnFolded
from backstay.model.ids import SessionId, TurnId
from backstay.model.turn import Accepted, Outcome, ToolCallRecord, TurnInfo
from backstay.runtime.events.follow import page_after, pages
from backstay.runtime.owner_scope import OwnerScope
from backstay.store import commands


class Turn:
    """A turn that was accepted. All of its methods work in any process, also after a restart."""

    def __init__(
        self,
        scope: OwnerScope,
        turn: TurnInfo,
        *,
        repeated: bool = False,
        forked_from: SessionId | None = None,
    ) -> None:
        self._scope, self._accepted, self._owner = scope, turn, scope.owner
        self._repeated, self._forked_from = repeated, forked_from

    @property
    def id(self) -> TurnId:
        """The turn's id."""
        return self._accepted.id

    @property
    def session(self) -> SessionId:
        """The session it belongs to: another one than asked for, if it was sent to a fork."""
        return self._accepted.session

    @property
    def repeated(self) -> bool:
        """Whether this request had been accepted before."""
        return self._repeated

    @property
    def forked_from(self) -> SessionId | None:
        """The busy session that it was forked from, with `if_busy="fork"`."""
        return self._forked_from

    async def read(self) -> TurnInfo:
        """Read the turn as it is now.

        Returns:
            The turn.

        Raises:
            NotFound: Its session was deleted.
        """
        return await self._scope.run(commands.turn(self.id, owner=self._owner))

    async def events(self, after: int | None = None) -> AsyncGenerator[Event, None]:
        """Follow the events of the turn: replayed first, then live until it ends.

        Args:
            after: The number of the last event that was read; None: from the beginning.

        Yields:
            The events, in order.

        Raises:
            InvalidPayload: `after` is not a number.
            HistoryChanged: A crash of the database lost the event `after`.
            StoreUnavailable: The app was closed.
        """
        if after is not None and type(after) is not int:
            raise InvalidPayload(f"after is {after!r}", hint="Pass the number of an event.")
        number = max(self._accepted.event - 1, after or 0)
        start = Cursor(fence=UNSEEN, number=number)
        if after is not None and await self._has_nothing_after(after):
            return
        supervisor = self._scope.supervisor
        async for page in pages(supervisor.store, supervisor.notifier, self.session, self._owner, start):
            for event in self._own(page):
                yield event
                if isinstance(event.body, TurnEnded | TurnFolded) and event.body.outcome is not None:
                    return
            if any(isinstance(event.body, SessionDeleted) for event in page.events):
                return
            if not page.more and await self._is_over():
                # It ended during the last read, or before the reader came: in both cases only these events are left.
                async for event in self._rest(page.next):
                    yield event
                return

    async def _rest(self, cursor: Cursor) -> AsyncGenerator[Event, None]:
        """The remaining events of an ended turn after a cursor."""
        more = True
        while more:
            page = await page_after(self._scope.supervisor.store, self.session, self._owner, cursor)
            cursor, more = page.next, page.more
            for event in self._own(page):
                yield event

    async def _is_over(self) -> bool:
        """Whether the turn has ended, or was deleted with its session."""
        try:
            return (await self.read()).state == "ended"
        except NotFound:
            return True

    async def _has_nothing_after(self, number: int) -> bool:
        """Whether the turn has ended and this is the last event number of the session."""
        if not await self._is_over():
            return False
        heads = await self._scope.supervisor.store.run(commands.heads([(self.session, self._owner)]))
        return heads.get(self.session, START).number == number

    def _own(self, page: EventPage) -> list[Event]:
        return [event for event in page.events if event.turn == self.id]

    async def outcome(self) -> Outcome:
        """Wait until the turn has ended.

        Returns:
            How it ended.

        Raises:
            NotFound: Its session was deleted.
            StoreUnavailable: The app was closed.
        """
        # A turn that runs in this process: its outcome arrives with the commit, without a read.
        if (outcome := await self._outcome_here()) is not None:
            return outcome
        with self._scope.supervisor.notifier.subscribe(self.session, self._owner, deltas=False) as subscription:
            while True:
                seen = subscription.head
                turn = await self.read()
                if turn.outcome is not None:
                    return turn.outcome
                await subscription.wait_past(seen)
                if (outcome := await self._outcome_here()) is not None:
                    return outcome

    async def _outcome_here(self) -> Outcome | None:
        """Wait for the outcome, if the turn runs in this process; None if it does not, or if another one ends it."""
        running = self._scope.supervisor.runner.outcome_of(self.id)
        return None if running is None else await asyncio.shield(running)

    async def cancel(self) -> Outcome:
        """Cancel the turn, in any process. A holder that does not respond in time is fenced off.

        Returns:
            How it ended.

        Raises:
            NotFound: Its session was deleted.
            NothingToDo: Another turn has taken it as steering.
            StoreUnavailable: The app was closed.
        """
        await self._scope.run(commands.cancel(self.id, owner=self._owner))
        try:
            return await asyncio.wait_for(self.outcome(), self._scope.supervisor.timing.grace * 2)
        except TimeoutError:
            await self._scope.run(commands.cancel(self.id, owner=self._owner, take=True))
        return await self.outcome()

    async def release(self) -> TurnInfo:
        """Let a held turn, which was imported, start when its time comes.

        Returns:
            The turn.

        Raises:
            NotFound: Its session was deleted.
            SessionBusy: It runs already.
            NothingToDo: It has ended.
        """
        return await self._scope.run(commands.release(self.id, owner=self._owner))

    async def calls(self) -> tuple[ToolCallRecord, ...]:
        """Read its tool calls and what is known of their effects.

        Returns:
            The calls.

        Raises:
            NotFound: Its session was deleted.
        """
        return await self._scope.run(commands.calls(self.id, owner=self._owner))

    async def approve(self, call: str, *, arguments_hash: str | None = None, run_again: bool = False) -> ToolCallRecord:
        """Allow a tool call that asked for approval.

        Args:
            call: The id of the call.
            arguments_hash: The hash of the arguments that were shown to the person.
            run_again: Allow a call of an interrupted turn that may have run to be made once more.

        Returns:
            The call.

        Raises:
            NotFound: Its session was deleted.
            NothingToDo: The call is not waiting for a decision.
            Conflict: The call has other arguments.
        """
        return await self._scope.run(
            commands.approve(self.id, call, owner=self._owner, arguments_hash=arguments_hash, run_again=run_again)
        )

    async def deny(self, call: str, *, arguments_hash: str | None = None) -> ToolCallRecord:
        """Forbid a tool call that asked for approval.

        Args:
            call: The id of the call.
            arguments_hash: The hash of the arguments that were shown to the person.

        Returns:
            The call.

        Raises:
            NotFound: Its session was deleted.
            NothingToDo: The call is not waiting for a decision.
            Conflict: The call has other arguments.
        """
        return await self._scope.run(commands.deny(self.id, call, owner=self._owner, arguments_hash=arguments_hash))


def turn_of(scope: OwnerScope, accepted: Accepted) -> Turn:
    """The handle of a turn that was just accepted."""
    return Turn(scope, accepted.turn, repeated=accepted.repeated, forked_from=accepted.forked_from)
