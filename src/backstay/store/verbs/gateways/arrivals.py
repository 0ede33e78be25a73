"""Received messages: each is stored once, with its turn and the platform's cursor, in one transaction.

Messages that belong together become one turn, which is held meanwhile: each later message adds its parts to the turn's
input. So there is no second copy of what a person sent, and the queue shows it at once.
"""

from collections.abc import Callable
from typing import NamedTuple

from backstay.errors import NotFound, TooLarge
from backstay.model.addresses.address import Address
from backstay.model.codec import check_name, check_text, encode_parts
from backstay.model.content import Part, check_input
from backstay.model.gateways.arrival import Arrival, GatheredArrival, Received
from backstay.model.gateways.gateway import OpenGateway
from backstay.model.gateways.notice import NewNotice
from backstay.model.ids import TurnId
from backstay.model.turn import Accepted, TurnInfo
from backstay.store.engine import Transaction
from backstay.store.rows import Rows
from backstay.store.verbs import session_queries
from backstay.store.verbs.gateways import deliveries, gateway_row, notices
from backstay.store.verbs.turns import submission, turn_queue
from backstay.store.verbs.turns.submission import TurnRequest
from backstay.store.verbs.turns.turn_row import TURN, TurnRow

# A turn is made of so many messages at most; the next one opens another gathering.
MOST_GATHERED = 100

# The notice for a chat about an accepted message; None: there is none.
Acknowledge = Callable[[Accepted], NewNotice | None]


class _ArrivalRow(NamedTuple):
    """The row of a received message."""

    id: str
    turn: TurnId | None
    gathering: str | None
    place: int
    parts: int
    files: str | None


_ARRIVAL = Rows("arrival", _ArrivalRow)
_OF_GATHERING = Rows("arrivals_of_gathering", _ArrivalRow)
_GATHERED = Rows("gathered", _ArrivalRow)


def receive(
    tx: Transaction,
    proof: OpenGateway,
    arrival: Arrival,
    cursor: str,
    *,
    action: Callable[[Transaction], object] | None = None,
    acknowledge: Acknowledge | None = None,
) -> Received:
    """Store a message, the turn that it becomes or joins, and the cursor. `action` runs in the same transaction."""
    check_name("the id of a message", arrival.id, tx.limits.name_bytes)
    check_name("the destination", arrival.destination, tx.limits.name_bytes)
    row = gateway_row.lock(tx, proof)
    row.cursor, row.received_at = check_text("the cursor", cursor, tx.limits.name_bytes), tx.now
    gateway_row.write(tx, row)
    known = _ARRIVAL.one(tx, owner=proof.owner, gateway=proof.name, id=arrival.id)
    if known is not None:
        return Received(turn=_turn_of(tx, proof, known.turn), repeated=True, gathering=known.gathering)
    if action is not None:
        action(tx)
    if not arrival.parts:
        _add(tx, proof, arrival, None, None)
        return Received(turn=None)
    joined = _joined(tx, proof, arrival)
    if joined is not None:
        return joined
    opens = arrival.gathering is not None and arrival.gathers
    turn = _submit(tx, proof, arrival, acknowledge, held=opens)
    _add(tx, proof, arrival, turn.id, arrival.gathering if opens else None)
    return Received(turn=turn, gathering=arrival.gathering if opens else None)


def move_cursor(tx: Transaction, proof: OpenGateway, cursor: str) -> None:
    """Store the cursor alone, after messages that are ignored."""
    row = gateway_row.lock(tx, proof)
    row.cursor = check_text("the cursor", cursor, tx.limits.name_bytes)
    gateway_row.write(tx, row)


def _submit(
    tx: Transaction, proof: OpenGateway, arrival: Arrival, acknowledge: Acknowledge | None, *, held: bool
) -> TurnInfo:
    request = TurnRequest(
        to=arrival.to.on(tx.host) if isinstance(arrival.to, Address) else arrival.to,
        owner=proof.owner,
        id=f"{proof.name}/{arrival.id}",
        agent=arrival.agent,
        if_busy=arrival.if_busy,
    )
    accepted = submission.submit(tx, request, arrival.parts)
    turn = turn_queue.hold(tx, accepted.turn.id, proof.owner) if held and not accepted.repeated else accepted.turn
    deliveries.bind(tx, proof, arrival.destination, turn.session, turn.event - 1)
    notice = None if acknowledge is None else acknowledge(accepted)
    if notice is not None:
        notices.add(tx, proof, notice)
    return turn


# --- gathering ------------------------------------------------------------------------------------------------------


def _joined(tx: Transaction, proof: OpenGateway, arrival: Arrival) -> Received | None:
    """Add a message to the open gathering of its name. None: it becomes a turn of its own."""
    if arrival.gathering is None:
        return None
    earlier = _OF_GATHERING.all(tx, owner=proof.owner, gateway=proof.name, gathering=arrival.gathering)
    if not earlier:
        return None
    turn = _held(tx, proof, earlier[0].turn)
    start = sum(row.parts for row in earlier if (row.place, row.id) < (arrival.place, arrival.id))
    parts = () if turn is None else _with(turn.parts(), start, 0, arrival.parts)
    if turn is None or len(earlier) >= MOST_GATHERED or not _fits(tx, parts):
        # A person has released or withdrawn the turn, or it is full: it gathers no more.
        _close(tx, proof, arrival.gathering, turn)
        return None
    # The first arrival names the turn in the request; each later one only has its row.
    _add(tx, proof, arrival, turn.id, arrival.gathering)
    edited = turn_queue.edit_waiting(tx, turn.id, proof.owner, parts)
    return Received(turn=edited, gathering=arrival.gathering)


def fetched(tx: Transaction, proof: OpenGateway, arrival: str, parts: tuple[Part, ...]) -> TurnInfo | None:
    """Replace the parts of a gathered message by these: its files are fetched, or cannot be."""
    gateway_row.lock(tx, proof)
    row = _ARRIVAL.one(tx, owner=proof.owner, gateway=proof.name, id=arrival)
    if row is None:
        raise NotFound(f"{proof.name} never received {arrival!r}")
    if row.files is None or row.gathering is None:
        return _turn_of(tx, proof, row.turn)
    turn = _held(tx, proof, row.turn)
    tx.run("set_arrival_parts", owner=proof.owner, gateway=proof.name, id=arrival, parts=len(parts))
    if turn is None:
        return _turn_of(tx, proof, row.turn)
    before = _OF_GATHERING.all(tx, owner=proof.owner, gateway=proof.name, gathering=row.gathering)
    start = sum(other.parts for other in before if (other.place, other.id) < (row.place, row.id))
    return turn_queue.edit_waiting(tx, turn.id, proof.owner, _with(turn.parts(), start, row.parts, parts))


def close_gathering(tx: Transaction, proof: OpenGateway, gathering: str, *, anyway: bool) -> TurnInfo | None:
    """Let the turn of a gathering start, unless files are missing; `anyway`: even then. None: it gathers on."""
    gateway_row.lock(tx, proof)
    rows = _OF_GATHERING.all(tx, owner=proof.owner, gateway=proof.name, gathering=gathering)
    if not rows or (not anyway and any(row.files is not None for row in rows)):
        return None
    turn = rows[0].turn
    _close(tx, proof, gathering, _held(tx, proof, turn))
    return _turn_of(tx, proof, turn)


def gathered(tx: Transaction, owner: str, gateway: str) -> tuple[GatheredArrival, ...]:
    """The messages of all open gatherings."""
    return tuple(
        GatheredArrival(id=row.id, gathering=row.gathering, turn=row.turn, files=row.files)
        for row in _GATHERED.all(tx, owner=owner, gateway=gateway)
        if row.gathering is not None and row.turn is not None
    )


def _close(tx: Transaction, proof: OpenGateway, gathering: str, turn: TurnRow | None) -> None:
    tx.run("close_gathering", owner=proof.owner, gateway=proof.name, gathering=gathering)
    if turn is not None:
        turn_queue.release(tx, turn.id, proof.owner)


def _held(tx: Transaction, proof: OpenGateway, turn: TurnId | None) -> TurnRow | None:
    """The turn of a gathering if it is still held, its session locked; None if a person has decided about it."""
    found = None if turn is None else TURN.one(tx, turn=turn, owner=proof.owner)
    if found is None or found.state != "waiting" or not found.held:
        return None
    with turn_queue.lock_session_of(tx, found.id, proof.owner):
        pass
    found = TURN.one(tx, turn=found.id, owner=proof.owner)
    return found if found is not None and found.state == "waiting" and found.held else None


def _with(parts: tuple[Part, ...], start: int, count: int, new: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts with these in place of `count` others. A person may have edited them: then there may be fewer."""
    return parts[:start] + new + parts[start + count :]


def _fits(tx: Transaction, parts: tuple[Part, ...]) -> bool:
    """Whether these parts may be one input. Any other fault of them is raised: the sender made it."""
    check_input(parts)
    try:
        encode_parts(parts, tx.limits)
    except TooLarge:
        return False
    return True


def _add(tx: Transaction, proof: OpenGateway, arrival: Arrival, turn: TurnId | None, gathering: str | None) -> None:
    tx.run(
        "add_arrival",
        owner=proof.owner,
        gateway=proof.name,
        id=arrival.id,
        turn=turn,
        gathering=gathering,
        place=arrival.place,
        parts=0 if gathering is None else len(arrival.parts),
        files=None if gathering is None else arrival.files,
        now=tx.now,
        sender=arrival.sender,
    )


def _turn_of(tx: Transaction, proof: OpenGateway, turn: TurnId | None) -> TurnInfo | None:
    found = None if turn is None else TURN.one(tx, turn=turn, owner=proof.owner)
    return None if found is None else session_queries.show(tx, found, proof.owner)
