"""What a gateway sends: deliveries, the ends of turns, and receipts."""

from typing import Literal

import msgspec

from backstay.model.ids import DeliveryId, SessionId, TurnId
from backstay.model.message import Message
from backstay.model.turn import Outcome

ReceiptState = Literal["waiting", "sending", "sent", "failed", "unknown"]


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A session whose answers are sent to a destination.

    Attributes:
        id: Its id.
        owner: The owner of the session.
        gateway: The gateway that sends.
        destination: Where, in the words of the platform.
        session: The session.
        cursor: The event up to which everything was sent, or failed.
        due: Whether a turn has ended since.
        closing: Whether it ends once no turn runs or waits in the session.
        stopped: Why the chat accepts nothing; None while it does. A message from there starts the delivery again.
        preview: The platform's id of the message that shows an unfinished answer; None if there is none.
    """

    id: DeliveryId
    owner: str
    gateway: str
    destination: str
    session: SessionId
    cursor: int
    due: bool
    closing: bool
    stopped: str | None = None
    preview: str | None = None


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a turn, as it is sent to a destination.

    Attributes:
        event: The event of the end; for a folded turn the last event of the fold.
        turn: The turn.
        agent: The agent that answered; None for messages that a program recorded.
        request_id: The id of the request that submitted it.
        outcome: How it ended.
        messages: The messages that it added, without its input.
        continues: How the turn ended that it continues; None if its input is its own.
    """

    event: int
    turn: TurnId
    agent: str | None
    request_id: str | None
    outcome: Outcome
    messages: tuple[Message, ...]
    continues: Outcome | None = None


class EndedTurns(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions in which turns have ended, from a position of the feed on.

    Attributes:
        sessions: Each session, and the last event of its last ended turn.
        started: Sessions in which turns have started.
        next: The position after them.
        more: Whether there are further ones already.
    """

    sessions: dict[SessionId, int]
    next: int
    more: bool
    started: frozenset[SessionId] = frozenset()


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """One part of what is sent for an event: the characters `low` to `high` (not included) of its text.

    Attributes:
        delivery: The delivery.
        event: The event.
        part: The number of the part, from 0 on.
        low: Its first character.
        high: The character after its last one.
        state: "waiting" to be sent again, "sending", "sent", "failed" for good, or "unknown": the platform may have
            received it.
        attempts: How often it was begun.
        repeated: Whether it was begun again after an attempt whose result is unknown.
        platform_id: The platform's id of the sent message.
        reason: Why it waits, failed or is unknown.
        at: When it was begun first, in milliseconds since 1970 (UTC).
    """

    delivery: DeliveryId
    event: int
    part: int
    low: int
    high: int
    state: ReceiptState
    attempts: int
    repeated: bool
    platform_id: str | None
    reason: str
    at: int


class PartSent(msgspec.Struct, frozen=True):
    """The platform has accepted the part, under this id."""

    platform_id: str


class PartRefused(msgspec.Struct, frozen=True):
    """The platform will never accept the part."""

    reason: str


class PartDeferred(msgspec.Struct, frozen=True):
    """The platform has certainly not accepted the part, and may accept it later."""

    reason: str


class PartUncertain(msgspec.Struct, frozen=True):
    """The connection was lost: the platform may have accepted the part."""

    reason: str


PartResult = PartSent | PartRefused | PartDeferred | PartUncertain
