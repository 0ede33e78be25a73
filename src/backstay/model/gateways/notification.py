"""Notifications of a session for other programs and devices, derived from an event of its log."""

from typing import Literal

import msgspec

from backstay.model.content import ToolCall
from backstay.model.gateways.delivery import Receipt
from backstay.model.ids import SessionId, TurnId
from backstay.model.turn import Outcome

NotificationKind = Literal["turn_ended", "approval_wanted", "session_changed"]
# Names of gateways that send notifications begin with one of these.
WEBHOOK = "webhook/"
PUSH = "push"


def sends_notifications(gateway: str) -> bool:
    """Whether the gateway of this name sends notifications, and is no account on a chat platform."""
    return gateway == PUSH or gateway.startswith(WEBHOOK)


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """One notification. It follows from the event, the turn and the session, so it is the same at every attempt.

    Attributes:
        kind: The kind of the notification.
        session: The session.
        event: The number of the event.
        at: When it happened, in milliseconds since 1970 (UTC).
        title: The title of the session; None if it has none, or was deleted.
        change: The kind of the event, if the session changed: `session_renamed`, `session_deleted`, and so on.
        turn: The turn.
        agent: The agent of the turn.
        request_id: The id of the request that submitted the turn.
        outcome: How the turn ended.
        text: The text of the agent, if the turn ended.
        call: The tool call that waits for a person.
    """

    kind: NotificationKind
    session: SessionId
    event: int
    at: int
    title: str | None = None
    change: str | None = None
    turn: TurnId | None = None
    agent: str | None = None
    request_id: str | None = None
    outcome: Outcome | None = None
    text: str = ""
    call: ToolCall | None = None

    @property
    def id(self) -> str:
        """Its name: the same for every attempt and every process."""
        return f"{self.session}.{self.event}"


class NotableEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions in which something happened after a position of the feed.

    Attributes:
        sessions: The first and the last event of each session.
        next: The position after them.
        more: Whether there are further ones already.
    """

    sessions: dict[SessionId, tuple[int, int]]
    next: int
    more: bool


class NextNotification(msgspec.Struct, frozen=True, kw_only=True):
    """The next notification of a delivery.

    Attributes:
        event: The event up to which the log was read; that of the notification, if there is one.
        notification: The notification; None: nothing of interest happened up to the event.
        receipts: The receipts of its attempts so far.
        retried: Whether it was given up before: then only the receivers that missed it get it again.
    """

    event: int
    notification: Notification | None = None
    receipts: tuple[Receipt, ...] = ()
    retried: bool = False


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A notification that was given up.

    Attributes:
        gateway: The gateway that gave it up, such as `webhook/ops`.
        session: The session.
        event: The event.
        part: The number of the receiver, where a gateway has several.
        attempts: How often it was sent.
        reason: Why it failed.
        at: When it was sent first, in milliseconds since 1970 (UTC).
    """

    gateway: str
    session: SessionId
    event: int
    part: int
    attempts: int
    reason: str
    at: int

    @property
    def id(self) -> str:
        """The name of the notification."""
        return f"{self.session}.{self.event}"


class NotificationBacklog(msgspec.Struct, frozen=True, kw_only=True):
    """How much a gateway still has to send.

    Attributes:
        waiting: The sessions with something to send.
        failed: The notifications that were given up.
    """

    waiting: int
    failed: int
