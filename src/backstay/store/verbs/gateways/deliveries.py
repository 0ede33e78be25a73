"""Deliveries: which sessions are sent where, how far, and a receipt for each part.

The text is never stored again: it follows from the messages of the turn that has ended. A receipt says which characters
of it were sent.
"""

from typing import NamedTuple, assert_never

import msgspec

from backstay.errors import Conflict, CorruptRecord, InvalidPayload, NotFound
from backstay.model.addresses.address import Address, ChatAddress
from backstay.model.codec import check_text
from backstay.model.event import TurnEnded, TurnFolded, TurnRecorded
from backstay.model.gateways.delivery import (
    Delivery,
    EndedTurns,
    Ending,
    PartDeferred,
    PartRefused,
    PartResult,
    PartSent,
    PartUncertain,
    Receipt,
)
from backstay.model.gateways.gateway import OpenGateway
from backstay.model.ids import DeliveryId, SessionId
from backstay.model.session import SessionInfo
from backstay.model.turn import COMPACTOR, Completed, Outcome
from backstay.store.engine import Transaction
from backstay.store.rows import Rows, value
from backstay.store.session_row import find
from backstay.store.verbs import session_changes, session_queries
from backstay.store.verbs.gateways import gateway_row
from backstay.store.verbs.turns import event_log
from backstay.store.verbs.turns.turn_row import TURN, TurnRow

_REASON = 500
_STARTED = "turn_started"


class PartName(NamedTuple):
    """Names a part: the delivery, the event whose text is sent, and the number of the part."""

    delivery: DeliveryId
    event: int
    part: int

    def __str__(self) -> str:
        return f"part {self.part} of event {self.event} of {self.delivery}"


class DeliveryRow(msgspec.Struct):
    """The row of a delivery."""

    id: DeliveryId
    owner: str
    gateway: str
    destination: str
    session: SessionId
    cursor: int
    due: int
    closing: int
    stopped: str | None
    preview: str | None

    def value(self) -> Delivery:
        """The delivery as a caller sees it."""
        return Delivery(
            id=self.id,
            owner=self.owner,
            gateway=self.gateway,
            destination=self.destination,
            session=self.session,
            cursor=self.cursor,
            due=self.due == 1,
            closing=self.closing == 1,
            stopped=self.stopped,
            preview=self.preview,
        )


class _EndingPosition(msgspec.Struct):
    """The start or the end of a turn, at its position in the feed."""

    position: int
    session: SessionId
    number: int
    kind: str


class ReceiptRow(msgspec.Struct):
    """The row of a receipt."""

    delivery: DeliveryId
    event: int
    part: int
    low: int
    high: int
    state: str
    attempts: int
    repeated: int
    platform_id: str | None
    reason: str
    at: int

    def value(self) -> Receipt:
        """The receipt as a caller sees it."""
        return msgspec.convert(msgspec.structs.asdict(self) | {"repeated": self.repeated == 1}, Receipt)


_DELIVERY = Rows("delivery", DeliveryRow)
_DELIVERY_TO = Rows("delivery_to", DeliveryRow)
_DUE = Rows("due_deliveries", DeliveryRow)
_TO = Rows("deliveries_to", DeliveryRow)
_WITH_PREVIEW = Rows("deliveries_with_preview", DeliveryRow)
_RUNNING = Rows("running_deliveries", DeliveryRow)
_OF_SESSION = Rows("deliveries_of_session", DeliveryRow)
_ENDINGS = Rows("endings_after", _EndingPosition)
_RECEIPT = Rows("receipt", ReceiptRow)
_RECEIPTS = Rows("receipts", ReceiptRow)
_RECEIPTS_BEFORE = Rows("receipts_before", ReceiptRow)
_CONTINUED = Rows("continued_turn", TurnRow)


def bind(tx: Transaction, proof: OpenGateway, destination: str, session: SessionId, cursor: int) -> Delivery:
    """Send the events after `cursor` of the session to this destination, unless they are already."""
    found = _DELIVERY_TO.one(tx, owner=proof.owner, gateway=proof.name, destination=destination, session=session)
    if found is None:
        name = tx.ids.delivery()
        tx.run(
            "add_delivery",
            delivery=name,
            owner=proof.owner,
            gateway=proof.name,
            destination=destination,
            session=session,
            cursor=cursor,
        )
        return _locked(tx, proof, name).value()
    if found.closing:
        tx.run("set_delivery_closing", delivery=found.id, closing=0, due=found.due)
        found.closing = 0
    if found.stopped is not None:
        cursor = max(cursor, found.cursor)
        tx.run_guarded("restart_delivery", delivery=found.id, cursor=cursor, found_cursor=found.cursor)
        found.stopped, found.cursor, found.due = None, cursor, 0
    return found.value()


def follow(tx: Transaction, proof: OpenGateway, destination: str, session: SessionId) -> Delivery:
    """Send the answers of a session from now on to this destination."""
    gateway_row.lock(tx, proof)
    return bind(tx, proof, destination, session, find(tx, session, proof.owner).last_event)


def leave(tx: Transaction, proof: OpenGateway, delivery: DeliveryId) -> Delivery:
    """End a delivery once no turn runs or waits in its session."""
    gateway_row.lock(tx, proof)
    row = _locked(tx, proof, delivery)
    row.closing = row.due = 1
    tx.run("set_delivery_closing", delivery=delivery, closing=1, due=1)
    return row.value()


def stop(tx: Transaction, proof: OpenGateway, delivery: DeliveryId, reason: str) -> Delivery | None:
    """Send nothing more for a delivery, until a message comes from its destination. None: it was to end anyway."""
    gateway_row.lock(tx, proof)
    row = _locked(tx, proof, delivery)
    if row.closing:
        _drop(tx, delivery)
        return None
    tx.run("stop_delivery", delivery=delivery, reason=_shortened(reason))
    return _locked(tx, proof, delivery).value()


def move_destination(
    tx: Transaction, proof: OpenGateway, old: str, new: str, chats: tuple[str, str] | None
) -> tuple[SessionId, ...]:
    """Send everything for one destination to another one. Returns the sessions.

    `chats` is the old and the new id of a chat: the addresses of these sessions under its old id get one under the new.
    """
    gateway_row.lock(tx, proof)
    tx.run("move_notices", owner=proof.owner, gateway=proof.name, old=old, new=new)
    tx.run("move_chat", owner=proof.owner, gateway=proof.name, old=old, new=new)
    rows = _TO.all(tx, owner=proof.owner, gateway=proof.name, destination=old)
    for row in rows:
        there = _DELIVERY_TO.one(tx, owner=proof.owner, gateway=proof.name, destination=new, session=row.session)
        if there is None:
            tx.run("move_delivery", delivery=row.id, destination=new)
        else:
            _drop(tx, row.id)
        if chats is not None:
            _move_addresses(tx, proof.owner, row.session, *chats)
    return tuple(row.session for row in rows)


def _move_addresses(tx: Transaction, owner: str, session: SessionId, old: str, new: str) -> None:
    if find(tx, session, owner).state_at(tx.now) != "open":
        return
    for spelling in session_queries.addresses(tx, session, owner):
        address = Address.parse(spelling)
        if not isinstance(address, ChatAddress) or address.chat != old:
            continue
        moved = msgspec.structs.replace(address, chat=new)
        # A message may have arrived under the new id already: that session stays.
        if session_changes.ADDRESS.one(tx, owner=owner, key=bytes.fromhex(moved.key)) is None:
            session_changes.point(tx, moved, session, owner)


def note_preview(tx: Transaction, proof: OpenGateway, delivery: DeliveryId, message: str) -> Delivery:
    """Store which message shows an unfinished answer at the destination."""
    gateway_row.lock(tx, proof)
    _locked(tx, proof, delivery)
    check_text("the platform's id", message, tx.limits.name_bytes)
    tx.run("set_preview", delivery=delivery, preview=message)
    return _locked(tx, proof, delivery).value()


def forget_preview(tx: Transaction, proof: OpenGateway, delivery: DeliveryId, message: str) -> Delivery:
    """Store that this message is removed. Another one, which was sent since, is kept."""
    gateway_row.lock(tx, proof)
    _locked(tx, proof, delivery)
    tx.run("forget_preview", delivery=delivery, preview=message)
    return _locked(tx, proof, delivery).value()


def running(tx: Transaction, owner: str, gateway: str) -> tuple[Delivery, ...]:
    """The deliveries of sessions in which a turn runs."""
    return tuple(row.value() for row in _RUNNING.all(tx, owner=owner, gateway=gateway))


def with_preview(tx: Transaction, owner: str, gateway: str) -> tuple[Delivery, ...]:
    """The deliveries whose destinations show an unfinished answer."""
    return tuple(row.value() for row in _WITH_PREVIEW.all(tx, owner=owner, gateway=gateway))


def start_anew(tx: Transaction, proof: OpenGateway, address: Address, destination: str) -> SessionInfo:
    """Point an address to a new session, whose answers go to the destination; the old one is sent until it is idle."""
    gateway_row.lock(tx, proof)
    here = address.on(tx.host)
    before = session_changes.ADDRESS.one(tx, owner=proof.owner, key=bytes.fromhex(here.key))
    created = session_changes.create(tx, proof.owner, None)
    session = session_changes.point(tx, here, created.id, proof.owner)
    if before is not None:
        leave_when_idle(tx, proof, destination, before.session)
    bind(tx, proof, destination, session.id, session.last_event)
    return session


def leave_when_idle(tx: Transaction, proof: OpenGateway, destination: str, session: SessionId) -> None:
    """End the delivery of a session to a destination, if there is one, once no turn runs or waits in the session."""
    found = _DELIVERY_TO.one(tx, owner=proof.owner, gateway=proof.name, destination=destination, session=session)
    if found is None:
        return
    session_row = find(tx, session, proof.owner)
    idle = session_row.running is None and not session_row.waiting
    if idle and event_log.next_ending(tx, session, found.cursor) is None:
        _drop(tx, found.id)
    else:
        tx.run("set_delivery_closing", delivery=found.id, closing=1, due=1)


def of_destination(tx: Transaction, owner: str, gateway: str, destination: str) -> tuple[Delivery, ...]:
    """The deliveries of a gateway to a destination."""
    return tuple(row.value() for row in _TO.all(tx, owner=owner, gateway=gateway, destination=destination))


def of_session(tx: Transaction, session: SessionId, owner: str) -> tuple[Delivery, ...]:
    """The deliveries of a session, of all gateways."""
    find(tx, session, owner)
    return tuple(row.value() for row in _OF_SESSION.all(tx, session=session, owner=owner))


# --- what is due ----------------------------------------------------------------------------------------------------


def ended_turns(tx: Transaction, owner: str, position: int | None, limit: int) -> EndedTurns:
    """The sessions with turns that have ended after a position of the feed. Without one, only the end of the feed."""
    # The end comes first: a row that is visible later has a later position.
    end = value(tx, "end_of_feed", owner=owner, now=tx.now) or 0
    if position is None:
        return EndedTurns(sessions={}, next=end, more=False)
    rows = _ENDINGS.all(tx, owner=owner, position=position, until=end, limit=limit + 1)
    shown = rows[:limit]
    more = len(rows) > limit
    return EndedTurns(
        sessions={row.session: row.number for row in shown if row.kind != _STARTED},
        started=frozenset(row.session for row in shown if row.kind == _STARTED),
        next=shown[-1].position if more else max(position, end),
        more=more,
    )


def mark_due(tx: Transaction, proof: OpenGateway, ended: EndedTurns) -> OpenGateway:
    """Mark the deliveries of these sessions, and store how far the feed was read."""
    row = gateway_row.lock(tx, proof)
    for session, number in ended.sessions.items():
        tx.run("mark_due", session=session, number=number, owner=proof.owner, gateway=proof.name)
    row.feed = max(row.feed, ended.next)
    gateway_row.write(tx, row)
    return row.proof()


def due(tx: Transaction, owner: str, gateway: str, after: str, limit: int) -> tuple[Delivery, ...]:
    """The deliveries with something to send, in the order of their ids."""
    return tuple(row.value() for row in _DUE.all(tx, owner=owner, gateway=gateway, after=after, limit=limit))


def next_ending(tx: Transaction, session: SessionId, owner: str, number: int) -> Ending | None:
    """The first turn that ended after an event and has something to show; None if there is none."""
    find(tx, session, owner)
    while (event := event_log.next_ending(tx, session, number)) is not None:
        number = event.last
        outcome = _outcome_of(event.body)
        turn = None if event.turn is None else TURN.one(tx, turn=event.turn, owner=owner)
        if outcome is None or turn is None or turn.agent == COMPACTOR or turn.taken_by is not None:
            continue
        messages = event.messages
        if isinstance(event.body, TurnFolded):
            # A fold has the input of its turn, too. The input of a turn is its first message.
            messages = messages[1:]
        return Ending(
            event=event.last,
            turn=turn.id,
            agent=turn.agent,
            request_id=turn.request_id,
            outcome=outcome,
            messages=messages,
            continues=_continued(tx, turn),
        )
    return None


def _continued(tx: Transaction, turn: TurnRow) -> Outcome | None:
    """How the turn ended that this one continues."""
    if turn.root == turn.id:
        return None
    before = _CONTINUED.one(tx, root=turn.root, turn=turn.id, event=turn.event)
    return None if before is None else before.value().outcome


def _outcome_of(body: object) -> Outcome | None:
    """How the turn ended; None for a fold that does not replace the end."""
    match body:
        case TurnEnded():
            return body.outcome
        case TurnFolded():
            return body.outcome
        case TurnRecorded():
            return Completed()
        case _:
            raise InvalidPayload(f"{type(body).__name__} is not the end of a turn")


def settle(tx: Transaction, proof: OpenGateway, delivery: DeliveryId, event: int) -> Delivery | None:
    """Store that everything up to an event was sent, or failed. None: the delivery has ended."""
    gateway_row.lock(tx, proof)
    row = _locked(tx, proof, delivery)
    session_row = find(tx, row.session, proof.owner)
    if event > session_row.last_event:
        raise InvalidPayload(
            f"{row.session} has {session_row.last_event} events, not {event}", hint="Pass an event's number."
        )
    found, row.cursor = row.cursor, max(row.cursor, event)
    row.due = int(event_log.next_ending(tx, row.session, row.cursor) is not None)
    tx.run_guarded("set_delivery_cursor", delivery=delivery, cursor=row.cursor, due=row.due, found_cursor=found)
    if row.closing and not row.due and session_row.running is None and not session_row.waiting:
        _drop(tx, delivery)
        return None
    return row.value()


# --- receipts -------------------------------------------------------------------------------------------------------


def receipts(tx: Transaction, delivery: DeliveryId, event: int, owner: str, gateway: str) -> tuple[Receipt, ...]:
    """The receipts of an event."""
    if _DELIVERY.one(tx, delivery=delivery, owner=owner, gateway=gateway) is None:
        raise _missing(delivery, owner)
    return tuple(row.value() for row in _RECEIPTS.all(tx, delivery=delivery, event=event))


def receipts_before(tx: Transaction, delivery: DeliveryId, event: int, owner: str, gateway: str) -> tuple[Receipt, ...]:
    """The receipts of the last event before this one for which anything was sent."""
    if _DELIVERY.one(tx, delivery=delivery, owner=owner, gateway=gateway) is None:
        raise _missing(delivery, owner)
    return tuple(row.value() for row in _RECEIPTS_BEFORE.all(tx, delivery=delivery, event=event))


def begin_part(tx: Transaction, proof: OpenGateway, which: PartName, characters: range) -> Receipt:
    """Store that a part is being sent now. A part that was sent, or failed for good, is not begun again."""
    row = _lock_receipt(tx, proof, which)
    if row is None:
        low, high = characters.start, characters.stop
        if not 0 <= low < high:
            raise InvalidPayload(f"a part cannot have the characters {low} to {high}", hint="Pass a range of the text.")
        tx.run("add_receipt", **which._asdict(), low=low, high=high, now=tx.now)
    elif row.state == "sending":
        raise Conflict(f"{which} is being sent already", hint="Wait for its result.")
    elif row.state in ("waiting", "unknown"):
        row.repeated = int(row.repeated or row.state == "unknown")
        row.state, row.attempts, row.reason = "sending", row.attempts + 1, ""
        _write(tx, row)
    return _receipt(tx, which)


def finish_part(tx: Transaction, proof: OpenGateway, which: PartName, result: PartResult, max_age: int) -> Receipt:
    """Store the result of a part. One that could not be sent for `max_age` milliseconds fails."""
    row = _lock_receipt(tx, proof, which)
    if row is None or row.state != "sending":
        raise Conflict(f"{which} is not being sent", hint="Begin it first.")
    match result:
        case PartSent(platform_id):
            row.state, row.platform_id = "sent", platform_id
        case PartRefused(reason):
            row.state, row.reason = "failed", _shortened(reason)
        case PartDeferred(reason):
            late = tx.now - row.at >= max_age
            row.state, row.reason = (
                ("failed", f"too late: {_shortened(reason)}") if late else ("waiting", _shortened(reason))
            )
        case PartUncertain(reason):
            row.state, row.reason = "unknown", _shortened(reason)
        case _:
            assert_never(result)
    _write(tx, row)
    return _receipt(tx, which)


def drop_of_session(tx: Transaction, session: SessionId, owner: str) -> None:
    """Drop the deliveries of a deleted session."""
    for row in _OF_SESSION.all(tx, session=session, owner=owner):
        _drop(tx, row.id)


def _drop(tx: Transaction, delivery: DeliveryId) -> None:
    tx.run("drop_receipts", delivery=delivery)
    tx.run("drop_delivery", delivery=delivery)


def _write(tx: Transaction, row: ReceiptRow) -> None:
    check_text("the platform's id", row.platform_id or "", tx.limits.name_bytes)
    tx.run(
        "set_receipt",
        delivery=row.delivery,
        event=row.event,
        part=row.part,
        state=row.state,
        attempts=row.attempts,
        repeated=row.repeated,
        platform_id=row.platform_id,
        reason=row.reason,
    )


def _lock_receipt(tx: Transaction, proof: OpenGateway, which: PartName) -> ReceiptRow | None:
    gateway_row.lock(tx, proof)
    _locked(tx, proof, which.delivery)
    return _RECEIPT.one(tx, **which._asdict())


def _receipt(tx: Transaction, which: PartName) -> Receipt:
    row = _RECEIPT.one(tx, **which._asdict())
    if row is None:
        raise CorruptRecord(str(which), "has no receipt")
    return row.value()


def _shortened(reason: str) -> str:
    return reason.replace("\0", " ")[:_REASON]


def _locked(tx: Transaction, proof: OpenGateway, delivery: DeliveryId) -> DeliveryRow:
    """The row of a delivery. The row of its gateway is locked, so no other transaction changes it."""
    row = _DELIVERY.one(tx, delivery=delivery, owner=proof.owner, gateway=proof.name)
    if row is None:
        raise _missing(delivery, proof.owner)
    return row


def _missing(delivery: DeliveryId, owner: str) -> NotFound:
    return NotFound(f"no delivery {delivery} of {owner!r}")
