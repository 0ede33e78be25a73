"""A turn on a server."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from backstay.client import api_calls
from backstay.client.event_follower import follow_session, stored_events
from backstay.client.server_connection import Connection
from backstay.errors import InvalidPayload, NotFound, StoreUnavailable
from backstay.model.content import Content
from backstay.model.event import Event, SessionDeleted, TurnEnded, TurnFolded
from backstay.model.ids import SessionId, TurnId
from backstay.model.turn import Outcome, ToolCallRecord, TurnInfo, TurnState


class TurnClient:
    """A turn that a server accepted, with the methods of `Turn`."""

    def __init__(self, connection: Connection, accepted: api_calls.SubmittedTurn) -> None:
        self._connection, self._accepted = connection, accepted

    @property
    def id(self) -> TurnId:
        """The turn's id."""
        return self._accepted.id

    @property
    def session(self) -> SessionId:
        """The session of the turn: another one than requested if the message was sent to a fork."""
        return self._accepted.session

    @property
    def repeated(self) -> bool:
        """Whether this request had been accepted before."""
        return self._accepted.repeated

    @property
    def forked_from(self) -> SessionId | None:
        """The busy session that it was forked from, with `if_busy="fork"`."""
        return self._accepted.forked_from

    @property
    def accepted_state(self) -> TurnState:
        """Whether it was running or waiting when this handle was made; `read` returns its present state."""
        return self._accepted.state

    @property
    def first_event(self) -> int:
        """The number of the first event of the turn."""
        return self._accepted.event

    async def read(self) -> TurnInfo:
        """Read the turn as it is now; see `Turn.read`."""
        return await self._connection.run(api_calls.turn(self.id))

    async def events(self, after: int | None = None) -> AsyncGenerator[Event, None]:
        """Follow the events of the turn until it ends; see `Turn.events`."""
        if after is not None and type(after) is not int:
            raise InvalidPayload(f"after is {after!r}", hint="Pass the number of an event.")
        if after is not None and await self._has_nothing_after(after):
            return
        number, live = max(self.first_event - 1, after or 0), not await self._is_over()
        if live:
            async with aclosing(follow_session(self._connection, self.session, number)) as events:
                async for event in events:
                    if event.turn == self.id:
                        yield event
                    if _is_end(event, self.id):
                        return
                    number = event.last
                    # As steering it ended with another turn: only the events that are stored are left.
                    if isinstance(event.body, TurnEnded | TurnFolded) and await self._is_over():
                        break
        async for event in stored_events(self._connection, self.session, number):
            if event.turn == self.id:
                yield event

    async def _is_over(self) -> bool:
        try:
            return (await self.read()).state == "ended"
        except NotFound:
            return True

    async def _has_nothing_after(self, number: int) -> bool:
        """Whether the turn has ended and this is the last event number of the session, or the session was deleted."""
        if not await self._is_over():
            return False
        try:
            return (await self._connection.run(api_calls.session(self.session))).last_event == number
        except NotFound:
            return True

    async def outcome(self) -> Outcome:
        """Wait until the turn has ended; see `Turn.outcome`."""
        while True:
            seen = (await self._connection.run(api_calls.session(self.session))).last_event
            turn = await self.read()
            if turn.outcome is not None:
                return turn.outcome
            async with aclosing(follow_session(self._connection, self.session, seen)) as events:
                async for event in events:
                    if isinstance(event.body, TurnEnded | TurnFolded | SessionDeleted) or event.turn is None:
                        break

    async def cancel(self) -> Outcome:
        """Cancel the turn, in any process; see `Turn.cancel`."""
        turn = await self._connection.run(api_calls.cancel(self.id))
        if turn.outcome is None:
            raise StoreUnavailable(f"{self.id} was asked to stop and has not ended yet", hint="Read its outcome.")
        return turn.outcome

    async def edit(self, content: Content) -> TurnInfo:
        """Replace the input of the turn while it waits; see `Turn.edit`."""
        return await self._connection.run(api_calls.edit_waiting(self.id, content))

    async def withdraw(self) -> TurnInfo:
        """Withdraw the turn while it waits; see `Turn.withdraw`."""
        return await self._connection.run(api_calls.withdraw(self.id))

    async def resume(self) -> "TurnClient":
        """Continue the turn on the server, after it was interrupted; see `Turn.resume`."""
        return TurnClient(self._connection, await self._connection.run(api_calls.resume(self.id)))

    async def release(self) -> TurnInfo:
        """Let a held turn start; see `Turn.release`."""
        return await self._connection.run(api_calls.release(self.id))

    async def calls(self) -> tuple[ToolCallRecord, ...]:
        """Read its tool calls; see `Turn.calls`."""
        return (await self._connection.run(api_calls.calls(self.id))).calls

    async def approve(self, call: str, *, arguments_hash: str | None = None, run_again: bool = False) -> ToolCallRecord:
        """Allow a tool call that needs approval; see `Turn.approve`."""
        return await self._connection.run(
            api_calls.decide(self.id, call, approved=True, arguments_hash=arguments_hash, run_again=run_again)
        )

    async def deny(self, call: str, *, arguments_hash: str | None = None) -> ToolCallRecord:
        """Forbid a tool call that needs approval; see `Turn.deny`."""
        return await self._connection.run(
            api_calls.decide(self.id, call, approved=False, arguments_hash=arguments_hash)
        )


def _is_end(event: Event, turn: TurnId) -> bool:
    """Whether no event of the turn follows."""
    if isinstance(event.body, SessionDeleted):
        return True
    return event.turn == turn and isinstance(event.body, TurnEnded | TurnFolded) and event.body.outcome is not None
