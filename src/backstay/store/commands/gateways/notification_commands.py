"""Commands for notifications to other programs and devices, and for those that could not be sent.

A sender of notifications is a gateway: it is opened, renewed and closed with `gateway_commands`, and parts are begun
and finished with them, too.
"""

from collections.abc import Collection
from typing import get_args

from backstay.errors import InvalidPayload
from backstay.model.gateways.delivery import Delivery
from backstay.model.gateways.gateway import OpenGateway
from backstay.model.gateways.notification import (
    DeadLetter,
    NextNotification,
    NotableEvents,
    NotificationBacklog,
    NotificationKind,
)
from backstay.model.ids import DeliveryId, SessionId, check_delivery_id, check_session_id
from backstay.store.commands.command import Read, Write
from backstay.store.commands.input_checks import check_kind, check_limit, check_whole
from backstay.store.verbs.gateways import notifications


def begin_notifications(gateway: OpenGateway) -> Write[OpenGateway]:
    """Let a new sender begin at the present end of the feed. One that was used before continues where it stopped.

    Args:
        gateway: The proof.

    Returns:
        The proof with the position in the feed.

    Raises:
        LeaseLost: Another worker sends.
    """
    check_kind("gateway", gateway, OpenGateway)
    return Write(
        name="begin_notifications", owner=gateway.owner, wakes=False, verb=lambda tx: notifications.begin(tx, gateway)
    )


def notable_events(gateway: str, position: int, *, owner: str, limit: int = 200) -> Read[NotableEvents]:
    """Read in which sessions something happened since a position of the feed.

    Args:
        gateway: The name of the sender.
        position: The position.
        owner: The owner of the sessions.
        limit: How many events are read at most.

    Returns:
        The sessions, and the position after them.

    Raises:
        InvalidPayload: An argument is not valid.
    """
    after, most = check_whole("position", position), check_limit(limit)
    return Read(
        name="notable_events", owner=owner, verb=lambda tx: notifications.notable(tx, owner, gateway, after, most)
    )


def mark_notable(gateway: OpenGateway, found: NotableEvents) -> Write[OpenGateway]:
    """Mark that there is something to send about these sessions, and store how far the feed was read.

    Args:
        gateway: The proof.
        found: The sessions.

    Returns:
        The proof with the position.

    Raises:
        LeaseLost: Another worker sends.
    """
    check_kind("gateway", gateway, OpenGateway)
    check_kind("found", found, NotableEvents)
    return Write(
        name="mark_notable", owner=gateway.owner, wakes=False, verb=lambda tx: notifications.mark(tx, gateway, found)
    )


def next_notification(
    delivery: DeliveryId, kinds: Collection[NotificationKind], *, gateway: str, owner: str
) -> Read[NextNotification]:
    """Read the next notification about a session: one that is sent again, or the first one that was never settled.

    Args:
        delivery: The delivery.
        kinds: Only notifications of these kinds.
        gateway: The name of the sender.
        owner: Its owner.

    Returns:
        The notification, and the receipts of its attempts.

    Raises:
        NotFound: The sender has no such delivery.
        InvalidPayload: A kind is unknown.
    """
    which, wanted = check_delivery_id(delivery), tuple(kinds)
    for kind in wanted:
        if kind not in get_args(NotificationKind):
            raise InvalidPayload(f"kind is {kind!r}", hint=f"Use one of {', '.join(get_args(NotificationKind))}.")
    return Read(
        name="next_notification",
        owner=owner,
        verb=lambda tx: notifications.following(tx, which, owner, gateway, wanted),
    )


def settle_notification(gateway: OpenGateway, delivery: DeliveryId, event: int) -> Write[Delivery | None]:
    """Store that every receiver got the notification of an event, or that it was given up for some of them.

    Args:
        gateway: The proof.
        delivery: The delivery.
        event: The event.

    Returns:
        The delivery; None if it has ended, because the session was deleted.

    Raises:
        LeaseLost: Another worker sends.
        NotFound: The sender has no such delivery.
    """
    check_kind("gateway", gateway, OpenGateway)
    which, number = check_delivery_id(delivery), check_whole("event", event)
    return Write(
        name="settle_notification",
        owner=gateway.owner,
        wakes=False,
        verb=lambda tx: notifications.settle(tx, gateway, which, number),
    )


def dead_letters(gateway: str, *, owner: str, limit: int = 100) -> Read[tuple[DeadLetter, ...]]:
    """Read the notifications that a sender gave up. The newest thousand are kept.

    Args:
        gateway: The name of the sender.
        owner: Its owner.
        limit: How many are read at most.

    Returns:
        The notifications, newest first.

    Raises:
        InvalidPayload: The limit is not valid.
    """
    most = check_limit(limit)
    return Read(
        name="dead_letters",
        owner=owner,
        snapshot=False,
        verb=lambda tx: notifications.dead_letters(tx, owner, gateway, most),
    )


def notification_backlog(gateway: str, *, owner: str) -> Read[NotificationBacklog]:
    """Count the notifications that a sender still has to send, and those that it gave up.

    Args:
        gateway: The name of the sender.
        owner: Its owner.

    Returns:
        The counts.
    """
    return Read(
        name="notification_backlog",
        owner=owner,
        snapshot=False,
        verb=lambda tx: notifications.backlog(tx, owner, gateway),
    )


def retry_notifications(
    gateway: str, *, owner: str, session: SessionId | None = None, event: int | None = None
) -> Write[int]:
    """Send the notifications again that a sender gave up, under the same ids.

    Args:
        gateway: The name of the sender.
        owner: Its owner.
        session: Only notifications about this session.
        event: Only the notification of this event of the session.

    Returns:
        How many notifications are sent again.

    Raises:
        NotFound: The owner has no such sender.
        InvalidPayload: An event is given without a session.
    """
    if event is not None and session is None:
        raise InvalidPayload("an event without a session names no notification", hint="Pass the session, too.")
    where = None if session is None else check_session_id(session)
    number = None if event is None else check_whole("event", event)
    # Its sender is woken, in whichever process it runs.
    return Write(
        name="retry_notifications", owner=owner, verb=lambda tx: notifications.retry(tx, owner, gateway, where, number)
    )
