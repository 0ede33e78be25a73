"""A turn as its sender sees it: its events as they happen, its outcome, and a way to stop it."""

import asyncio
from collections.abc import AsyncGenerator

from backstay.errors import Conflict, InvalidPayload, NotFound
from backstay.model.content import Content
from backstay.model.event import START, UNSEEN, Cursor, Event, EventPage, SessionDeleted, TurnEnded, TurnFolded
from backstay.model.ids import SessionId, TurnId
from backstay.model.turn import Accepted, Outcome, ToolCallRecord, TurnInfo, TurnState
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
        """The session of the turn. If the message was sent to a fork, this is the fork."""
        return self._accepted.session

    @property
    def repeated(self) -> bool:
        """Whether this request had been accepted before."""
        return self._repeated

    @property
    def forked_from(self) -> SessionId | None:
        """The busy session that it was forked from, with `if_busy="fork"`."""
        return self._forked_from

    @property
    def accepted_state(self) -> TurnState:
        """Whether it was running or waiting when this handle was made; `read` returns its present state."""
        return self._accepted.state

    @property
    def first_event(self) -> int:
        """The number of the first event of the turn."""
        return self._accepted.event

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

    async def edit(self, content: Content) -> TurnInfo:
        """Replace the input of the turn while it waits.

        Args:
            content: The new message.

        Returns:
            The turn.

        Raises:
            NotFound: Its session was deleted.
            NothingToDo: It does not wait any more, or waits with finished messages.
            QuotaExceeded: The owner has reached its limit of stored bytes.
            InvalidPayload: The message is not valid.
            TooLarge: The message is too long.
        """
        return await self._scope.run(commands.edit_waiting(self.id, content, owner=self._owner))

    async def withdraw(self) -> TurnInfo:
        """Withdraw the turn while it waits: it never runs.

        Returns:
            The turn.

        Raises:
            NotFound: Its session was deleted.
            NothingToDo: It does not wait any more.
        """
        return await self._scope.run(commands.withdraw(self.id, owner=self._owner))

    async def release(self) -> TurnInfo:
        """Release a held turn of an imported session: it starts when it is next.

        Returns:
            The turn.

        Raises:
            NotFound: Its session was deleted.
            SessionBusy: It runs already.
            NothingToDo: It has ended.
        """
        return await self._scope.run(commands.release(self.id, owner=self._owner))

    async def resume(self) -> "Turn":
        """Continue the turn in this process, after it was interrupted. Stored output and results are not repeated.

        A tool call that waited for a person still waits; `approve` and `deny` continue the turn by themselves where its
        agent is served.

        Returns:
            The turn that continues this one: a new one, or the one that does so already.

        Raises:
            NotFound: Its session was deleted.
            NothingToDo: It was not interrupted.
            Conflict: It is not the last turn of its session, or its agent does not answer here.
            SessionBusy: Another turn runs or waits in the session.
            QuotaExceeded: The owner already runs its maximum number of turns in this process.
        """
        return await resume_turn(self._scope, self.id)

    async def calls(self) -> tuple[ToolCallRecord, ...]:
        """Read the tool calls of the turn, with their effects as far as they are known.

        Returns:
            The calls.

        Raises:
            NotFound: Its session was deleted.
        """
        return await self._scope.run(commands.calls(self.id, owner=self._owner))

    async def approve(self, call: str, *, arguments_hash: str | None = None, run_again: bool = False) -> ToolCallRecord:
        """Approve a tool call. An interrupted turn then continues, wherever its agent is served.

        Args:
            call: The id of the call.
            arguments_hash: The hash of the arguments that were shown to the person.
            run_again: Allow one more run of a call of an interrupted turn that may have run.

        Returns:
            The call.

        Raises:
            NotFound: Its session was deleted.
            NothingToDo: The call is not waiting for a decision.
            Conflict: The arguments of the call are not the ones that were shown.
        """
        return await self._scope.run(
            commands.approve(self.id, call, owner=self._owner, arguments_hash=arguments_hash, run_again=run_again)
        )

    async def deny(self, call: str, *, arguments_hash: str | None = None) -> ToolCallRecord:
        """Deny a tool call. An interrupted turn then continues, wherever its agent is served.

        Args:
            call: The id of the call.
            arguments_hash: The hash of the arguments that were shown to the person.

        Returns:
            The call.

        Raises:
            NotFound: Its session was deleted.
            NothingToDo: The call is not waiting for a decision.
            Conflict: The arguments of the call are not the ones that were shown.
        """
        return await self._scope.run(commands.deny(self.id, call, owner=self._owner, arguments_hash=arguments_hash))


async def resume_turn(scope: OwnerScope, turn: TurnId) -> Turn:
    """Continue an interrupted turn here. Returns the turn that continues it, also if another process started it."""
    try:
        following = (await scope.supervisor.resume(turn, scope.owner)).id
    except Conflict:
        continued_by = (await scope.run(commands.turn(turn, owner=scope.owner))).continued_by
        if continued_by is None:
            raise
        following = continued_by
    return Turn(scope, await scope.run(commands.turn(following, owner=scope.owner)))


def turn_of(scope: OwnerScope, accepted: Accepted) -> Turn:
    """The handle of a turn that was just accepted."""
    return Turn(scope, accepted.turn, repeated=accepted.repeated, forked_from=accepted.forked_from)
