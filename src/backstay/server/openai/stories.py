"""Stories: the events of one turn, read to where they go by now."""

from backstay.errors import NotFound
from backstay.model.event import UNSEEN, Cursor, Event, SessionDeleted, TurnEnded, TurnFolded, TurnRecorded
from backstay.model.ids import TurnId
from backstay.model.message import Message
from backstay.model.turn import COMPACTOR, Turn
from backstay.runtime.owned import Owned
from backstay.server.openai.names import response_name
from backstay.store.port import Store


async def story_of(owned: Owned, turn: Turn) -> list[Event]:
    """All that is told of a turn by now; `NotFound` if its session was deleted since the turn was read."""
    cursor, more, found = Cursor(fence=UNSEEN, number=turn.event - 1), True, list[Event]()
    while more and not (found and _is_last(found[-1])):
        page = await owned.read(Store.events_after, turn.session, cursor)
        if any(isinstance(event.body, SessionDeleted) for event in page.events):
            raise no_response(turn.id)
        found += [event for event in page.events if event.turn == turn.id]
        cursor, more = page.next, page.more
    return found


async def recorded_in(owned: Owned, turn: Turn) -> tuple[Message, ...]:
    """The messages that a turn of a caller's own recorded; none as long as it waits."""
    if turn.state != "ended":
        return ()
    bodies = [event.body for event in await story_of(owned, turn)]
    return next((body.messages for body in bodies if isinstance(body, TurnRecorded)), ())


async def responding(owned: Owned, turn: TurnId) -> Turn:
    """A turn that is a response: one that an agent answers, and that nobody has deleted."""
    found = await owned.read(Store.turn, turn)
    if found.agent is None or found.agent == COMPACTOR or found.forgotten:
        raise no_response(turn)
    return found


def no_response(turn: TurnId) -> NotFound:
    """There is none of this name, for whoever asks."""
    return NotFound(f"there is no response {response_name(turn)!r}", hint="It may have been deleted.")


def _is_last(event: Event) -> bool:
    body = event.body
    return isinstance(body, TurnEnded | TurnRecorded) or (isinstance(body, TurnFolded) and body.outcome is not None)
