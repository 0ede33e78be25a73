"""Notifications of the sessions of an owner, for other programs and devices.

A gateway that sends notifications has a delivery for each session in which something happened, with the same cursor and
the same receipts as a chat. Nothing of a notification is stored: it follows from the event.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from backstay.errors import NotFound
from backstay.model.codec import decode_event
from backstay.model.content import text_of
from backstay.model.event import (
    SessionCreated,
    SessionDeleted,
    ToolCalled,
    TurnEnded,
    TurnFolded,
    TurnRecorded,
)
from backstay.model.gateways.delivery import Delivery, Receipt
from backstay.model.gateways.gateway import OpenGateway
from backstay.model.gateways.notification import (
    DeadLetter,
    NextNotification,
    NotableEvents,
    Notification,
    NotificationBacklog,
    NotificationKind,
    sends_notifications,
)
from backstay.model.ids import DeliveryId, SessionId, TurnId, WindowId
from backstay.model.message import Message
from backstay.model.turn import COMPACTOR, Completed, Outcome
from backstay.store.engine import Transaction
from backstay.store.rows import Rows, value
from backstay.store.session_row import SessionRow, lock_if_there
from backstay.store.verbs.gateways import gateway_row
from backstay.store.verbs.gateways.deliveries import DeliveryRow, PartName, ReceiptRow
from backstay.store.verbs.history.window_segments import WindowSegment
from backstay.store.verbs.turns import messages
from backstay.store.verbs.turns.turn_row import CALL, TURN, TurnRow

# The destination of every delivery of such a gateway: it has one receiver, or finds its receivers itself.
DESTINATION = "notifications"
# So many events of a session are read at once.
_STEP = 50


class _NotablePosition(NamedTuple):
    """A notable event, at its position in the feed."""

    position: int
    session: SessionId
    number: int
    last: int
    kind: str
    at: int


class _NotableRow(msgspec.Struct, gc=False):
    """A notable event of a session."""

    kind: str
    number: int
    last: int
    fence: int
    at: int
    turn: TurnId | None
    format: int
    body: str
    source: WindowId | None
    low: int | None
    high: int | None


class _Failure(NamedTuple):
    """The key of a receipt."""

    delivery: DeliveryId
    event: int
    part: int


_DELIVERY = Rows("delivery", DeliveryRow)
_DELIVERY_TO = Rows("delivery_to", DeliveryRow)
_RECEIPTS = Rows("receipts", ReceiptRow)
_AFTER = Rows("notable_after", _NotablePosition)
_NEXT = Rows("next_notable", _NotableRow)
_AT = Rows("notable_at", _NotableRow)
_RETRIED = Rows("retried_receipts", ReceiptRow)
_FAILED = Rows("failed_receipts", DeadLetter)
_BACKLOG = Rows("backlog", NotificationBacklog)
_TO_DROP = Rows("failures_to_drop", _Failure)
_ROW_OR_TOMBSTONE = Rows("session_row_or_tombstone", SessionRow)


def begin(tx: Transaction, proof: OpenGateway) -> OpenGateway:
    """Let a new gateway begin at the end of the feed. One that was used before continues where it stopped."""
    row = gateway_row.lock(tx, proof)
    if not row.cursor:
        row.cursor, row.feed = "feed", value(tx, "end_of_feed", owner=proof.owner, now=tx.now) or 0
        gateway_row.write(tx, row)
    return row.proof()


def skip_history(tx: Transaction, session: SessionId, owner: str, last_event: int) -> None:
    """Send no notifications about the events of a session that was imported."""
    for gateway in gateway_row.of_owner(tx, owner):
        if sends_notifications(gateway.name):
            _add(tx, owner, gateway.name, session, last_event, due=0, closing=0)


# --- what is due ----------------------------------------------------------------------------------------------------


def notable(tx: Transaction, owner: str, gateway: str, position: int, limit: int) -> NotableEvents:
    """The sessions in which something happened after a position of the feed."""
    # The end comes first: a row that is visible later has a later position.
    end = value(tx, "end_of_feed", owner=owner, now=tx.now) or 0
    created = next((one.created_at for one in gateway_row.of_owner(tx, owner) if one.name == gateway), 0)
    rows = _AFTER.all(tx, owner=owner, position=position, until=end, limit=limit + 1)
    more = len(rows) > limit
    found: dict[SessionId, tuple[int, int]] = {}
    for row in rows[:limit]:
        if row.kind == "turn_folded" and row.at < created:
            # The turn ended before the gateway was there. Only its fold is new.
            continue
        first, last = found.get(row.session, (row.last, row.last))
        found[row.session] = (min(first, row.last), max(last, row.last))
    return NotableEvents(sessions=found, next=rows[limit - 1].position if more else max(position, end), more=more)


def mark(tx: Transaction, proof: OpenGateway, found: NotableEvents) -> OpenGateway:
    """Mark the deliveries of these sessions as due, and store how far the feed was read."""
    row = gateway_row.lock(tx, proof)
    # In one order: two gateways that lock the rows of the same sessions do not wait for each other.
    for session, (first, last) in sorted(found.sessions.items()):
        if _delivery_to(tx, proof, session) is not None:
            tx.run("mark_due", session=session, number=last, owner=proof.owner, gateway=proof.name)
        elif lock_if_there(tx, session, proof.owner) is not None:
            _add(tx, proof.owner, proof.name, session, first - 1, due=1, closing=0)
        elif _ROW_OR_TOMBSTONE.one(tx, session=session, owner=proof.owner) is not None:
            # It was deleted: its delivery ends with its tombstone.
            _add(tx, proof.owner, proof.name, session, first - 1, due=1, closing=1)
    row.feed = max(row.feed, found.next)
    gateway_row.write(tx, row)
    return row.proof()


def _add(tx: Transaction, owner: str, gateway: str, session: SessionId, cursor: int, *, due: int, closing: int) -> None:
    name = tx.ids.delivery()
    tx.run(
        "add_delivery",
        delivery=name,
        owner=owner,
        gateway=gateway,
        destination=DESTINATION,
        session=session,
        cursor=cursor,
    )
    if due or closing:
        tx.run("set_delivery_closing", delivery=name, closing=closing, due=due)


def _delivery_to(tx: Transaction, proof: OpenGateway, session: SessionId) -> object | None:
    return _DELIVERY_TO.one(tx, owner=proof.owner, gateway=proof.name, destination=DESTINATION, session=session)


# --- what is sent ---------------------------------------------------------------------------------------------------


def following(
    tx: Transaction, delivery: DeliveryId, owner: str, gateway: str, kinds: Sequence[NotificationKind]
) -> NextNotification:
    """The next notification: one that is to be sent again, or the first one after the cursor."""
    row = _DELIVERY.one(tx, delivery=delivery, owner=owner, gateway=gateway)
    if row is None:
        raise NotFound(f"no delivery {delivery} of {owner!r}")
    retried = _RETRIED.one(tx, delivery=delivery, cursor=row.cursor)
    if retried is not None:
        event = _AT.one(tx, session=row.session, number=retried.event)
        notification = None if event is None else _notification(tx, row.session, owner, event)
        # Later attempts have the name of the first one, also if the event became a part of a fold.
        named = None if notification is None else msgspec.structs.replace(notification, event=retried.event)
        begun = _receipts(tx, delivery, retried.event)
        return NextNotification(event=retried.event, notification=named, receipts=begun, retried=True)
    return _after(tx, row.value(), owner, kinds)


def _after(tx: Transaction, delivery: Delivery, owner: str, kinds: Sequence[NotificationKind]) -> NextNotification:
    rows = _NEXT.all(tx, session=delivery.session, number=delivery.cursor, limit=_STEP)
    for row in rows:
        notification = _notification(tx, delivery.session, owner, row)
        if notification is not None and notification.kind in kinds:
            return NextNotification(
                event=row.last, notification=notification, receipts=_receipts(tx, delivery.id, row.last)
            )
    return NextNotification(event=rows[-1].last if rows else delivery.cursor)


def _receipts(tx: Transaction, delivery: DeliveryId, event: int) -> tuple[Receipt, ...]:
    return tuple(row.value() for row in _RECEIPTS.all(tx, delivery=delivery, event=event))


def settle(tx: Transaction, proof: OpenGateway, delivery: DeliveryId, event: int) -> Delivery | None:
    """Store that everything up to an event was sent, or given up. None: the delivery has ended."""
    gateway_row.lock(tx, proof)
    row = _DELIVERY.one(tx, delivery=delivery, owner=proof.owner, gateway=proof.name)
    if row is None:
        raise NotFound(f"no delivery {delivery} of {proof.owner!r}")
    found, row.cursor = row.cursor, max(row.cursor, event)
    tx.run("drop_finished_receipts", delivery=delivery, event=event)
    row.due = int(
        bool(_NEXT.all(tx, session=row.session, number=row.cursor, limit=1))
        or _RETRIED.one(tx, delivery=delivery, cursor=row.cursor) is not None
    )
    tx.run_guarded("set_delivery_cursor", delivery=delivery, cursor=row.cursor, due=row.due, found_cursor=found)
    _drop_old_failures(tx, proof)
    if row.closing and not row.due:
        tx.run("drop_receipts", delivery=delivery)
        tx.run("drop_delivery", delivery=delivery)
        return None
    return row.value()


def _notification(tx: Transaction, session: SessionId, owner: str, row: _NotableRow) -> Notification | None:
    """The notification of an event; None: it has none."""
    body = decode_event(f"event {row.number} of {session}", row.format, row.body)
    about = _ROW_OR_TOMBSTONE.one(tx, session=session, owner=owner)
    title = None if about is None else about.title
    if not isinstance(body, TurnEnded | TurnFolded | TurnRecorded | ToolCalled):
        change = "session_forked" if isinstance(body, SessionCreated) and body.source is not None else row.kind
        shown = None if isinstance(body, SessionDeleted) else title
        return Notification(
            kind="session_changed", session=session, event=row.last, at=row.at, title=shown, change=change
        )
    turn = None if row.turn is None else TURN.one(tx, turn=row.turn, owner=owner)
    if turn is None or turn.agent == COMPACTOR or turn.taken_by is not None:
        return None
    if isinstance(body, ToolCalled):
        return _wanted(tx, row, body, turn, title)
    outcome = _outcome(body)
    return None if outcome is None else _ended(tx, row, outcome, turn, title, is_fold=isinstance(body, TurnFolded))


def _outcome(body: TurnEnded | TurnFolded | TurnRecorded) -> Outcome | None:
    return Completed() if isinstance(body, TurnRecorded) else body.outcome


def _wanted(
    tx: Transaction, row: _NotableRow, body: ToolCalled, turn: TurnRow, title: str | None
) -> Notification | None:
    """The notification of a call that still waits for a person."""
    record = CALL.one(tx, turn=turn.id, call=body.call.id)
    if not body.call.approval or body.call.client or record is None or record.approval != "asked":
        return None
    return Notification(
        kind="approval_wanted",
        session=turn.session,
        event=row.last,
        at=row.at,
        title=title,
        turn=turn.id,
        agent=turn.agent,
        request_id=turn.request_id,
        call=body.call,
    )


def _ended(
    tx: Transaction, row: _NotableRow, outcome: Outcome, turn: TurnRow, title: str | None, *, is_fold: bool
) -> Notification:
    added = _messages(tx, row)
    # A fold has the input of its turn, too. The input of a turn is its first message.
    written = [text_of(message.parts).strip() for message in added[is_fold:] if message.role == "assistant"]
    return Notification(
        kind="turn_ended",
        session=turn.session,
        event=row.last,
        at=row.at,
        title=title,
        turn=turn.id,
        agent=turn.agent,
        request_id=turn.request_id,
        outcome=outcome,
        text="\n\n".join(filter(None, written)),
    )


def _messages(tx: Transaction, row: _NotableRow) -> Sequence[Message]:
    if row.source is None or row.low is None or row.high is None:
        return ()
    return messages.read(tx, WindowSegment(row.low, row.source, row.low, row.high))


# --- what was given up ----------------------------------------------------------------------------------------------


def dead_letters(tx: Transaction, owner: str, gateway: str, limit: int) -> tuple[DeadLetter, ...]:
    """The notifications that a gateway gave up, newest first."""
    return tuple(_FAILED.all(tx, owner=owner, gateway=gateway, limit=limit))


def backlog(tx: Transaction, owner: str, gateway: str) -> NotificationBacklog:
    """How much a gateway still has to send."""
    return _BACKLOG.one(tx, owner=owner, gateway=gateway) or NotificationBacklog(waiting=0, failed=0)


def retry(tx: Transaction, owner: str, gateway: str, session: SessionId | None, event: int | None) -> int:
    """Send abandoned notifications again: one, those of a session, or all. Returns how many."""
    gateway_row.lock_any(tx, owner, gateway)
    count = tx.changed("retry_receipts", owner=owner, gateway=gateway, session=session, event=event, now=tx.now)
    if count:
        tx.run("mark_retried", owner=owner, gateway=gateway)
    return count


def _drop_old_failures(tx: Transaction, proof: OpenGateway) -> None:
    for old in _TO_DROP.all(tx, owner=proof.owner, gateway=proof.name, kept=tx.limits.dead_letters):
        which = PartName(old.delivery, old.event, old.part)
        tx.run("drop_old_failures", **which._asdict())
