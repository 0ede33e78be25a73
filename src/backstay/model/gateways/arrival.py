"""Messages that a gateway receives."""

import msgspec

from backstay.model.addresses.address import Address
from backstay.model.content import Part
from backstay.model.ids import SessionId, TurnId
from backstay.model.turn import IfBusy, TurnInfo


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a platform.

    Attributes:
        id: The platform's id of the message, unique within the gateway: it is received once.
        to: The session that it is for: an address, or a session.
        destination: Where answers are sent, in the words of the platform.
        parts: Its content; empty for a message that starts no turn, such as a command.
        agent: The agent that answers; None: the one that was asked last in the session.
        if_busy: The policy if a turn runs or waits in the session.
        gathering: Names the messages that become one turn, such as those of one person in one chat; None: the message
            is a turn of its own.
        gathers: Whether it opens a gathering if none is open. Otherwise it only joins an open one.
        place: Its place among the messages of a gathering, whatever the order in which they are received.
        files: What still has to be fetched, in the words of the platform; None: nothing. Needs a gathering.
        sender: The platform's id of the person who wrote it.
    """

    id: str
    to: Address | SessionId
    destination: str
    parts: tuple[Part, ...] = ()
    agent: str | None = None
    if_busy: IfBusy = "enqueue"
    gathering: str | None = None
    gathers: bool = False
    place: int = 0
    files: str | None = None
    sender: str | None = None


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is durable now.

    Attributes:
        turn: Its turn; None if it starts none, or if the turn was deleted since.
        repeated: Whether it was received before, and only the cursor was stored.
        gathering: The open gathering that it belongs to; None: its turn gathers no further messages.
    """

    turn: TurnInfo | None
    repeated: bool = False
    gathering: str | None = None


class GatheredArrival(msgspec.Struct, frozen=True, kw_only=True):
    """A message of an open gathering.

    Attributes:
        id: The platform's id of the message.
        gathering: The name of the gathering.
        turn: The held turn that the messages become.
        files: What still has to be fetched; None: nothing.
    """

    id: str
    gathering: str
    turn: TurnId
    files: str | None
