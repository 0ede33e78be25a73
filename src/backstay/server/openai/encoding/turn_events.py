"""Reads the events of one turn, up to the last one so far."""

from backstay.errors import NotFound
from backstay.model.event import UNSEEN, Cursor, Event, SessionDeleted, TurnEnded, TurnFolded, TurnRecorded
from backstay.model.ids import TurnId
from backstay.model.message import Message
from backstay.model.turn import COMPACTOR, TurnInfo
from backstay.runtime.owner_sessions import OwnerSessions
from backstay.server.openai.openai_ids import response_name
from backstay.store import commands


async def events_of(owned: OwnerSessions, turn: TurnInfo) -> list[Event]:
    """All events of a turn so far.

    Raises:
        NotFound: The session was deleted after the turn was read.
    """
    cursor, more, found = Cursor(fence=UNSEEN, number=turn.event - 1), True, list[Event]()
    while more and not (found and _is_last(found[-1])):
        page = await owned.run(commands.events_after(turn.session, cursor, owner=owned.owner))
        if any(isinstance(event.body, SessionDeleted) for event in page.events):
            raise response_not_found(turn.id)
        found += [event for event in page.events if event.turn == turn.id]
        cursor, more = page.next, page.more
    return found


async def recorded_in(owned: OwnerSessions, turn: TurnInfo) -> tuple[Message, ...]:
    """The messages that the client recorded with this turn; none while it waits."""
    if turn.state != "ended":
        return ()
    bodies = [event.body for event in await events_of(owned, turn)]
    return next((body.messages for body in bodies if isinstance(body, TurnRecorded)), ())


async def responding(owned: OwnerSessions, turn: TurnId) -> TurnInfo:
    """The turn as a response: an agent answers it, and the response was not deleted.

    Raises:
        NotFound: There is no such turn, or it is not a response.
    """
    found = await owned.run(commands.turn(turn, owner=owned.owner))
    if found.agent is None or found.agent == COMPACTOR or found.forgotten:
        raise response_not_found(turn)
    return found


def response_not_found(turn: TurnId) -> NotFound:
    """The error for a response that does not exist."""
    return NotFound(f"response {response_name(turn)!r} does not exist", hint="It may have been deleted.")


def _is_last(event: Event) -> bool:
    body = event.body
    return isinstance(body, TurnEnded | TurnRecorded) or (isinstance(body, TurnFolded) and body.outcome is not None)
