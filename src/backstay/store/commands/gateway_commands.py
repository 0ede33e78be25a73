"""Commands of chat gateways: the poller's lease, received messages, deliveries and receipts.

Those that write take an `OpenGateway`, the proof that this worker is the poller. They raise `LeaseLost` if another one
is.
"""

from backstay.errors import ConfigError, InvalidPayload
from backstay.model.addresses.address import Address
from backstay.model.codec import check_name, check_text
from backstay.model.content import PartsLike, parts_of
from backstay.model.gateways.arrival import Arrival, GatheredArrival, Received
from backstay.model.gateways.delivery import Delivery, EndedTurns, Ending, PartResult, Receipt
from backstay.model.gateways.gateway import GatewayInfo, OpenGateway, PollerHealth
from backstay.model.ids import DeliveryId, SessionId, check_delivery_id, check_session_id
from backstay.model.session import SessionInfo
from backstay.model.turn import TurnInfo
from backstay.store.commands.command import Read, Write
from backstay.store.commands.input_checks import check_kind, check_limit, check_owner, check_target, check_whole
from backstay.store.verbs.gateways import arrivals, deliveries, gateway_row
from backstay.store.verbs.gateways.arrivals import Acknowledge
from backstay.store.verbs.gateways.deliveries import PartName

# Files that are still to be fetched are described by a short text of the gateway.
_MOST_FILES_BYTES = 16 << 10


def open_gateway(name: str, *, owner: str) -> Write[OpenGateway | None]:
    """Become the poller of a gateway, which is created if needed. Parts that another poller was sending are in doubt.

    Args:
        name: The platform and the account, such as `telegram/123456`.
        owner: The owner of its sessions.

    Returns:
        The proof for every write of the gateway; None while another worker polls.

    Raises:
        QuotaExceeded: The gateway is new, and the owner has reached its limit of stored bytes.
        InvalidPayload: The name is not valid.
    """
    return Write(
        name="open_gateway",
        owner=owner,
        read_first=True,
        registers=True,
        wakes=False,
        verb=lambda tx: gateway_row.open_gateway(
            tx, check_owner(tx, owner), check_name("the gateway's name", name, tx.limits.name_bytes)
        ),
    )


def renew_gateway(gateway: OpenGateway, health: PollerHealth | None = None) -> Write[OpenGateway]:
    """Renew the lease of the poller.

    Args:
        gateway: The proof.
        health: What the poller has seen of the platform since the last renewal.

    Returns:
        The proof with its longer lease.

    Raises:
        LeaseLost: Another worker polls.
    """
    check_kind("gateway", gateway, OpenGateway)
    seen = health or PollerHealth()
    check_text("the problem", seen.problem, _MOST_FILES_BYTES)
    return Write(
        name="renew_gateway",
        owner=gateway.owner,
        wakes=False,
        verb=lambda tx: gateway_row.renew(tx, gateway, seen),
    )


def close_gateway(gateway: OpenGateway) -> Write[GatewayInfo]:
    """Stop polling: another worker may begin at once.

    Args:
        gateway: The proof.

    Returns:
        The gateway.

    Raises:
        LeaseLost: Another worker polls.
    """
    check_kind("gateway", gateway, OpenGateway)
    return Write(name="close_gateway", owner=gateway.owner, wakes=False, verb=lambda tx: gateway_row.close(tx, gateway))


def gateways(*, owner: str) -> Read[tuple[GatewayInfo, ...]]:
    """Read the gateways of an owner.

    Args:
        owner: The owner.

    Returns:
        The gateways, in the order of their names.
    """
    return Read(name="gateways", owner=owner, snapshot=False, verb=lambda tx: gateway_row.of_owner(tx, owner))


# --- receiving ------------------------------------------------------------------------------------------------------


def receive(
    gateway: OpenGateway,
    arrival: Arrival,
    *,
    cursor: str,
    action: Write[object] | None = None,
    acknowledge: Acknowledge | None = None,
) -> Write[Received]:
    """Store a message of a platform: its turn, its place in a gathering, and the cursor, in one transaction.

    A message that was received before changes only the cursor.

    Args:
        gateway: The proof.
        arrival: The message.
        cursor: The position after the message in the platform's list.
        action: A command of the same owner that the message asks for, such as `undo`. It runs in the same transaction:
            once, or the message is not received.
        acknowledge: Composes the notice that tells the chat about a new turn, in the same transaction.

    Returns:
        The turn of the message, and its open gathering.

    Raises:
        LeaseLost: Another worker polls.
        NotFound: The owner has no such session.
        SessionBusy: Too many turns wait in the session, or `if_busy` is `reject`.
        SessionEnded: The session was ended.
        SessionExpired: The session has expired.
        QuotaExceeded: The owner has reached its limit of stored bytes.
        ConfigError: The action is a command of another owner.
        InvalidPayload: An argument is not valid.
        TooLarge: The message is too long.
    """
    check_kind("gateway", gateway, OpenGateway)
    check_kind("arrival", arrival, Arrival)
    check_target(arrival.to)
    check_whole("place", arrival.place)
    if arrival.parts:
        parts_of(arrival.parts)
    if arrival.gathering is not None:
        check_text("the name of a gathering", arrival.gathering, 1 << 10)
    if arrival.files is not None:
        check_text("the description of files", arrival.files, _MOST_FILES_BYTES)
        if arrival.gathering is None or not arrival.gathers:
            raise InvalidPayload(
                f"message {arrival.id!r} has files to fetch and opens no gathering",
                hint="Give it a gathering, and gathers=True: its turn waits for the files.",
            )
    if action is not None and action.owner != gateway.owner:
        raise ConfigError(f"{action.name} is a command of {action.owner!r}, not of {gateway.owner!r}")
    return Write(
        name="receive",
        owner=gateway.owner,
        verb=lambda tx: arrivals.receive(
            tx, gateway, arrival, cursor, action=None if action is None else action.verb, acknowledge=acknowledge
        ),
    )


def move_cursor(gateway: OpenGateway, cursor: str) -> Write[None]:
    """Store the cursor alone, after messages that are ignored.

    Args:
        gateway: The proof.
        cursor: The position in the platform's list.

    Returns:
        Nothing.

    Raises:
        LeaseLost: Another worker polls.
        InvalidPayload: The cursor is not valid.
    """
    check_kind("gateway", gateway, OpenGateway)
    return Write(
        name="move_cursor",
        owner=gateway.owner,
        wakes=False,
        verb=lambda tx: arrivals.move_cursor(tx, gateway, cursor),
    )


def fetched(gateway: OpenGateway, arrival: str, content: PartsLike) -> Write[TurnInfo | None]:
    """Replace the content of a gathered message: its files are fetched, or cannot be.

    Args:
        gateway: The proof.
        arrival: The platform's id of the message.
        content: The new content.

    Returns:
        The turn; None if it was deleted.

    Raises:
        LeaseLost: Another worker polls.
        NotFound: The gateway never received this message.
        QuotaExceeded: The owner has reached its limit of stored bytes.
        InvalidPayload: The content is not valid.
        TooLarge: The input of the turn would be too long.
    """
    check_kind("gateway", gateway, OpenGateway)
    parts = parts_of(content)
    return Write(name="fetched", owner=gateway.owner, verb=lambda tx: arrivals.fetched(tx, gateway, arrival, parts))


def close_gathering(gateway: OpenGateway, gathering: str, *, anyway: bool = False) -> Write[TurnInfo | None]:
    """Let the turn of a gathering start, unless files are missing.

    Args:
        gateway: The proof.
        gathering: The name of the gathering.
        anyway: Whether it starts even without the missing files.

    Returns:
        The turn; None if files are missing, or no such gathering is open.

    Raises:
        LeaseLost: Another worker polls.
    """
    check_kind("gateway", gateway, OpenGateway)
    return Write(
        name="close_gathering",
        owner=gateway.owner,
        read_first=True,
        verb=lambda tx: arrivals.close_gathering(tx, gateway, gathering, anyway=anyway),
    )


def gathered(gateway: str, *, owner: str) -> Read[tuple[GatheredArrival, ...]]:
    """Read the messages of all open gatherings of a gateway.

    Args:
        gateway: The name of the gateway.
        owner: Its owner.

    Returns:
        The messages, by gathering, in the order of their places.
    """
    return Read(name="gathered", owner=owner, snapshot=False, verb=lambda tx: arrivals.gathered(tx, owner, gateway))


# --- sending --------------------------------------------------------------------------------------------------------


def deliver_to(gateway: OpenGateway, destination: str, session: SessionId) -> Write[Delivery]:
    """Send the answers of a session to a destination, from now on. `receive` does so for the destination of a message.

    Args:
        gateway: The proof.
        destination: Where, in the words of the platform.
        session: The session.

    Returns:
        The delivery.

    Raises:
        LeaseLost: Another worker polls.
        NotFound: The owner has no such session.
        InvalidPayload: The destination is not valid.
    """
    check_kind("gateway", gateway, OpenGateway)
    where = check_session_id(session)
    return Write(
        name="deliver_to",
        owner=gateway.owner,
        read_first=True,
        wakes=False,
        verb=lambda tx: deliveries.follow(
            tx, gateway, check_name("the destination", destination, tx.limits.name_bytes), where
        ),
    )


def start_anew(gateway: OpenGateway, address: Address, destination: str) -> Write[SessionInfo]:
    """Point an address to a new session, and send its answers to the destination of the old one.

    Args:
        gateway: The proof.
        address: The address. Turns that run or wait in its old session are still sent.
        destination: Where answers are sent, in the words of the platform.

    Returns:
        The new session.

    Raises:
        LeaseLost: Another worker polls.
        QuotaExceeded: The owner has reached its limit of sessions or bytes.
        InvalidPayload: An argument is not valid.
    """
    check_kind("gateway", gateway, OpenGateway)
    check_kind("address", address, Address)
    return Write(
        name="start_anew",
        owner=gateway.owner,
        verb=lambda tx: deliveries.start_anew(
            tx, gateway, address, check_name("the destination", destination, tx.limits.name_bytes)
        ),
    )


def end_delivery(gateway: OpenGateway, delivery: DeliveryId) -> Write[Delivery]:
    """End a delivery once no turn runs or waits in its session.

    Args:
        gateway: The proof.
        delivery: The delivery.

    Returns:
        The delivery.

    Raises:
        LeaseLost: Another worker polls.
        NotFound: The gateway has no such delivery.
    """
    check_kind("gateway", gateway, OpenGateway)
    which = check_delivery_id(delivery)
    return Write(
        name="end_delivery",
        owner=gateway.owner,
        wakes=False,
        verb=lambda tx: deliveries.leave(tx, gateway, which),
    )


def stop_delivery(gateway: OpenGateway, delivery: DeliveryId, reason: str) -> Write[Delivery | None]:
    """Send nothing more for a delivery: its chat accepts nothing. A message from there starts it again.

    Args:
        gateway: The proof.
        delivery: The delivery.
        reason: Why the chat accepts nothing.

    Returns:
        The delivery; None if it was to end anyway.

    Raises:
        LeaseLost: Another worker polls.
        NotFound: The gateway has no such delivery.
    """
    check_kind("gateway", gateway, OpenGateway)
    which = check_delivery_id(delivery)
    return Write(
        name="stop_delivery",
        owner=gateway.owner,
        wakes=False,
        verb=lambda tx: deliveries.stop(tx, gateway, which, reason),
    )


def move_destination(
    gateway: OpenGateway, old: str, new: str, *, chats: tuple[str, str] | None = None
) -> Write[tuple[SessionId, ...]]:
    """Send all answers for this destination to another one: a chat got another id, or a topic is gone.

    Args:
        gateway: The proof.
        old: The destination that does not exist any more.
        new: The destination instead.
        chats: The old and the new id of the chat, if that is what changed. The sessions that were sent there, and that
            the old id leads to, are found under the new id, too, unless it leads elsewhere already.

    Returns:
        The sessions that are sent there.

    Raises:
        LeaseLost: Another worker polls.
        InvalidPayload: The new destination is not valid.
    """
    check_kind("gateway", gateway, OpenGateway)
    return Write(
        name="move_destination",
        owner=gateway.owner,
        verb=lambda tx: deliveries.move_destination(
            tx, gateway, old, check_name("the destination", new, tx.limits.name_bytes), chats
        ),
    )


def note_preview(gateway: OpenGateway, delivery: DeliveryId, message: str) -> Write[Delivery]:
    """Store which message shows an unfinished answer, so that the next poller can remove it, too.

    Args:
        gateway: The proof.
        delivery: The delivery.
        message: The platform's id of the message.

    Returns:
        The delivery.

    Raises:
        LeaseLost: Another worker polls.
        NotFound: The gateway has no such delivery.
        InvalidPayload: The id of the message is not valid.
    """
    check_kind("gateway", gateway, OpenGateway)
    which = check_delivery_id(delivery)
    return Write(
        name="note_preview",
        owner=gateway.owner,
        wakes=False,
        verb=lambda tx: deliveries.note_preview(tx, gateway, which, message),
    )


def forget_preview(gateway: OpenGateway, delivery: DeliveryId, message: str) -> Write[Delivery]:
    """Store that the message of a preview is removed. Another message that was noted since is kept.

    Args:
        gateway: The proof.
        delivery: The delivery.
        message: The platform's id of the message.

    Returns:
        The delivery.

    Raises:
        LeaseLost: Another worker polls.
        NotFound: The gateway has no such delivery.
    """
    check_kind("gateway", gateway, OpenGateway)
    which = check_delivery_id(delivery)
    return Write(
        name="forget_preview",
        owner=gateway.owner,
        wakes=False,
        verb=lambda tx: deliveries.forget_preview(tx, gateway, which, message),
    )


def running_deliveries(gateway: str, *, owner: str) -> Read[tuple[Delivery, ...]]:
    """Read the deliveries of sessions in which a turn runs now.

    Args:
        gateway: The name of the gateway.
        owner: Its owner.

    Returns:
        The deliveries, in the order of their ids.
    """
    return Read(
        name="running_deliveries",
        owner=owner,
        snapshot=False,
        verb=lambda tx: deliveries.running(tx, owner, gateway),
    )


def deliveries_with_preview(gateway: str, *, owner: str) -> Read[tuple[Delivery, ...]]:
    """Read the deliveries whose destinations show an unfinished answer.

    Args:
        gateway: The name of the gateway.
        owner: Its owner.

    Returns:
        The deliveries, in the order of their ids.
    """
    return Read(
        name="deliveries_with_preview",
        owner=owner,
        snapshot=False,
        verb=lambda tx: deliveries.with_preview(tx, owner, gateway),
    )


def deliveries_of(session: SessionId, *, owner: str) -> Read[tuple[Delivery, ...]]:
    """Read where the answers of a session are sent.

    Args:
        session: The session.
        owner: The owner of the session.

    Returns:
        The deliveries of all gateways.

    Raises:
        NotFound: The owner has no such session.
    """
    where = check_session_id(session)
    return Read(name="deliveries_of", owner=owner, verb=lambda tx: deliveries.of_session(tx, where, owner))


def due_deliveries(
    gateway: str, *, owner: str, after: DeliveryId | None = None, limit: int = 100
) -> Read[tuple[Delivery, ...]]:
    """Read the deliveries that have something to send.

    Args:
        gateway: The name of the gateway.
        owner: Its owner.
        after: Only deliveries after this one.
        limit: How many are read at most.

    Returns:
        The deliveries, in the order of their ids.

    Raises:
        InvalidPayload: The limit is not valid.
    """
    most = check_limit(limit)
    return Read(
        name="due_deliveries",
        owner=owner,
        snapshot=False,
        verb=lambda tx: deliveries.due(tx, owner, gateway, after or "", most),
    )


def ended_turns(position: int | None, *, owner: str, limit: int = 500) -> Read[EndedTurns]:
    """Read in which sessions turns have ended, or started, since a position of the feed.

    Args:
        position: The position. None: an empty result at the end of the feed.
        owner: The owner of the sessions.
        limit: How many ends of turns are read at most.

    Returns:
        The sessions, and the position after them.

    Raises:
        InvalidPayload: An argument is not valid.
    """
    if position is not None:
        check_whole("position", position)
    most = check_limit(limit)
    return Read(name="ended_turns", owner=owner, verb=lambda tx: deliveries.ended_turns(tx, owner, position, most))


def mark_due(gateway: OpenGateway, ended: EndedTurns) -> Write[OpenGateway]:
    """Mark the deliveries of sessions in which turns have ended, and store how far the feed was read.

    Args:
        gateway: The proof.
        ended: The ended turns.

    Returns:
        The proof with the position.

    Raises:
        LeaseLost: Another worker polls.
    """
    check_kind("gateway", gateway, OpenGateway)
    check_kind("ended", ended, EndedTurns)
    return Write(
        name="mark_due", owner=gateway.owner, wakes=False, verb=lambda tx: deliveries.mark_due(tx, gateway, ended)
    )


def next_ending(session: SessionId, after: int, *, owner: str) -> Read[Ending | None]:
    """Read the first turn of a session that ended after an event, with the messages that it added.

    Args:
        session: The session.
        after: The number of the event.
        owner: The owner of the session.

    Returns:
        The end of the turn; None if no turn has ended since.

    Raises:
        NotFound: The owner has no such session.
    """
    where = check_session_id(session)
    number = check_whole("after", after)
    return Read(name="next_ending", owner=owner, verb=lambda tx: deliveries.next_ending(tx, where, owner, number))


def receipts(delivery: DeliveryId, event: int, *, gateway: str, owner: str) -> Read[tuple[Receipt, ...]]:
    """Read the receipts of the parts that were sent for an event.

    Args:
        delivery: The delivery.
        event: The event.
        gateway: The name of the gateway.
        owner: Its owner.

    Returns:
        The receipts, in the order of the parts.

    Raises:
        NotFound: The gateway has no such delivery.
    """
    which = check_delivery_id(delivery)
    number = check_whole("event", event)
    return Read(name="receipts", owner=owner, verb=lambda tx: deliveries.receipts(tx, which, number, owner, gateway))


def receipts_before(delivery: DeliveryId, event: int, *, gateway: str, owner: str) -> Read[tuple[Receipt, ...]]:
    """Read the receipts of the last event before this one for which anything was sent.

    Args:
        delivery: The delivery.
        event: The event.
        gateway: The name of the gateway.
        owner: Its owner.

    Returns:
        The receipts, in the order of the parts.

    Raises:
        NotFound: The gateway has no such delivery.
    """
    which = check_delivery_id(delivery)
    number = check_whole("event", event)
    return Read(
        name="receipts_before",
        owner=owner,
        verb=lambda tx: deliveries.receipts_before(tx, which, number, owner, gateway),
    )


def begin_part(
    gateway: OpenGateway, delivery: DeliveryId, event: int, part: int, *, low: int, high: int
) -> Write[Receipt]:
    """Store that a part is being sent, before it is. Send it only if the receipt says "sending".

    Args:
        gateway: The proof.
        delivery: The delivery.
        event: The event whose text is sent.
        part: The number of the part, from 0 on.
        low: The first character of the part. A part that was begun before keeps its characters.
        high: The character after its last one.

    Returns:
        The receipt: "sending", or "sent" or "failed" if there is nothing left to do.

    Raises:
        LeaseLost: Another worker polls.
        NotFound: The gateway has no such delivery.
        Conflict: The part is being sent.
        InvalidPayload: The range is not valid.
    """
    check_kind("gateway", gateway, OpenGateway)
    which = _part_name(delivery, event, part)
    characters = range(check_whole("low", low), check_whole("high", high))
    return Write(
        name="begin_part",
        owner=gateway.owner,
        wakes=False,
        verb=lambda tx: deliveries.begin_part(tx, gateway, which, characters),
    )


def finish_part(
    gateway: OpenGateway,
    delivery: DeliveryId,
    event: int,
    part: int,
    result: PartResult,
    *,
    max_age_seconds: float = 86_400,
) -> Write[Receipt]:
    """Store what became of a part that was being sent.

    Args:
        gateway: The proof.
        delivery: The delivery.
        event: The event whose text is sent.
        part: The number of the part.
        result: What became of it.
        max_age_seconds: A deferred part that was begun this long ago fails.

    Returns:
        The receipt.

    Raises:
        LeaseLost: Another worker polls.
        NotFound: The gateway has no such delivery.
        Conflict: The part is not being sent.
        InvalidPayload: The result is not valid.
    """
    check_kind("gateway", gateway, OpenGateway)
    if not isinstance(result, PartResult):
        raise InvalidPayload(f"result is {result!r}", hint="Pass PartSent, PartRefused, PartDeferred or PartUncertain.")
    which = _part_name(delivery, event, part)
    age = round(max_age_seconds * 1000)
    return Write(
        name="finish_part",
        owner=gateway.owner,
        wakes=False,
        verb=lambda tx: deliveries.finish_part(tx, gateway, which, result, age),
    )


def settle(gateway: OpenGateway, delivery: DeliveryId, event: int) -> Write[Delivery | None]:
    """Store that everything of a session up to an event was sent, or failed for good.

    Args:
        gateway: The proof.
        delivery: The delivery.
        event: The event.

    Returns:
        The delivery; None if it has ended.

    Raises:
        LeaseLost: Another worker polls.
        NotFound: The gateway has no such delivery, or the session was deleted.
        InvalidPayload: The session has no such event.
    """
    check_kind("gateway", gateway, OpenGateway)
    which, number = check_delivery_id(delivery), check_whole("event", event)
    return Write(
        name="settle",
        owner=gateway.owner,
        wakes=False,
        verb=lambda tx: deliveries.settle(tx, gateway, which, number),
    )


def _part_name(delivery: DeliveryId, event: int, part: int) -> PartName:
    return PartName(check_delivery_id(delivery), check_whole("event", event), check_whole("part", part))
