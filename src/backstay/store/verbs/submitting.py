"""Submitting: a person's input is accepted, and starts a turn, waits, steers, or goes to a fork."""

from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from backstay.errors import InvalidPayload, RequestMismatch, SessionBusy, TooLarge
from backstay.model.address import Address
from backstay.model.codec import Encoded, check_name, content_hash, encode_parts
from backstay.model.content import Json, Part, check_input, check_role, parts_of
from backstay.model.event import CancelRequested, TurnSubmitted
from backstay.model.ids import MessageId, SessionId, TurnId
from backstay.model.message import NewMessage
from backstay.model.session import Session, Ttl
from backstay.model.turn import BEHIND, COMPACTOR, Accepted, IfBusy, OpenTurn, Recorded, Turn, TurnState
from backstay.store.door import Door, find, leave
from backstay.store.engine import Transaction
from backstay.store.verbs import events, history, messages, running, sessions
from backstay.store.verbs.messages import Written
from backstay.store.verbs.pairing import check_pairing
from backstay.store.verbs.turns import TurnRow, encode_record, find_row

# Who says so runs next.
_NEXT = ("steer", "replace")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the sender asked for, besides what it said. With `start`, the sending worker serves the agent."""

    to: Address | SessionId
    owner: str
    id: str | None = None
    agent: str | None = None
    if_busy: IfBusy = "enqueue"
    expect_revision: int | None = None
    ttl: Ttl | None = None
    start: bool = False

    def __post_init__(self) -> None:
        if self.if_busy not in ("enqueue", "reject", "steer", "replace", "fork"):
            raise InvalidPayload(f"if_busy is {self.if_busy!r}", hint="Use enqueue, reject, steer, replace or fork.")

    def key(self) -> bytes | None:
        """Names the request for ever: its id is unique per owner and address, or per owner and session."""
        if self.id is None:
            return None
        return request_key(self.owner, self.to.key if isinstance(self.to, Address) else self.to, self.id)

    def fingerprint(self, *content: Json) -> bytes | None:
        """What tells a repetition of this request from another one under its id."""
        return None if self.id is None else content_hash(*content)


def request_key(owner: str, scope: str, id: str) -> bytes:
    """The one name of a request that this owner sent to an address, by its key, or to a session."""
    return sha256(f"{owner}\0{scope}\0{id}".encode()).digest()


class Input(NamedTuple):
    """What was said, for which agent; as it will be stored, and the hash by which a repetition is known."""

    agent: str
    parts: tuple[Part, ...]
    body: Encoded
    fingerprint: bytes | None


def submit(tx: Transaction, request: Request, parts: tuple[Part, ...]) -> Accepted:
    """Accept an input. It starts at once if nobody speaks and this worker is to run it."""
    agent = check_agent(tx, request.agent)
    body = encode_parts(parts, tx.limits)
    check_input(parts)
    fingerprint = request.fingerprint("submit", body.text)
    first = already(tx, request, fingerprint)
    if first is not None:
        return first
    return send(tx, enter(tx, request), request, Input(agent, parts, body, fingerprint))


def check_agent(tx: Transaction, agent: object) -> str:
    """The name of an agent that can be asked, or a refusal."""
    name = check_name("the agent's name", agent, tx.limits.name_bytes)
    if name == COMPACTOR:
        raise InvalidPayload(f"{name} answers nobody", hint="Use `compact` to compact a session.")
    return name


def send(tx: Transaction, door: Door, request: Request, said: Input) -> Accepted:
    """Give an input to a session that was just entered, and write its door."""
    busy = door.running is not None
    source = None
    if busy and request.if_busy == "reject":
        running.require_free(door)
    if busy and request.if_busy == "fork":
        source, door, busy = door.id, history.fork_from(tx, door, None), False
    door.touch(tx.now)
    row, opened = _open_or_enqueue(tx, door, request, said, busy=busy)
    leave(tx, door)
    return Accepted(turn=row.value(), session=door.value(tx.now), opened=opened, forked_from=source)


def _open_or_enqueue(
    tx: Transaction, door: Door, request: Request, said: Input, *, busy: bool
) -> tuple[TurnRow, OpenTurn | None]:
    """Start the turn if nobody speaks or waits; otherwise it waits, and the worker gets what waited longest."""
    turn = tx.ids.turn()
    if request.start and not busy and not door.waiting:
        words = Written(NewMessage(role="user", parts=said.parts), said.body)
        opened = running.open_turn(tx, door, turn, said.agent, words, root=turn)
        row = new_row(tx, door, turn, said.agent, "running")
        row.event = row.first_event = opened.event
        add(tx, row, request, said.fingerprint)
        return row, opened
    row = _enqueue(tx, door, turn, request, said)
    next_up = running.go_on(tx, door, (said.agent,)) if request.start and not busy else None
    return (find_row(tx, turn, door.owner) if next_up is not None else row), next_up


def record(tx: Transaction, request: Request, said: Sequence[NewMessage]) -> Recorded:
    """Add finished messages as one turn; behind a running turn they wait for its end."""
    checked = _check_record(tx, said)
    fingerprint = request.fingerprint("record", [(message.role, body.text) for message, body in checked])
    first = already(tx, request, fingerprint)
    if first is not None:
        return Recorded(turn=first.turn, session=first.session, messages=(), repeated=True)
    door = enter(tx, request)
    door.touch(tx.now)
    row, ids = _record_in(tx, door, request, checked, fingerprint)
    leave(tx, door)
    return Recorded(turn=row.value(), session=door.value(tx.now), messages=tuple(ids))


def _record_in(
    tx: Transaction, door: Door, request: Request, said: Sequence[Written], fingerprint: bytes | None
) -> tuple[TurnRow, Sequence[MessageId]]:
    messages_said = [message for message, _ in said]
    turn = tx.ids.turn()
    if door.running is None and not door.waiting:
        check_pairing(messages_said, open_calls=lambda: history.open_calls(tx, door))
        row = new_row(tx, door, turn, None, "ended")
        add(tx, row, request, fingerprint)
        return row, running.add_recorded(tx, door, turn, said)
    if request.if_busy == "reject":
        raise SessionBusy(f"a turn runs or waits in {door.id}")
    check_pairing(messages_said, open_calls=frozenset())
    return _enqueue_record(tx, door, turn, request, messages_said, fingerprint=fingerprint), ()


def has_work(tx: Transaction, agents: Collection[str]) -> bool:
    """Whether a turn waits that one of these agents can answer now."""
    return any(tx.one("claimable", agent=agent, owner=None) for agent in agents)


def claim(tx: Transaction, agents: Collection[str], owner: str | None) -> OpenTurn | None:
    """Start the oldest waiting turn that one of these agents can answer."""
    found = [row for agent in agents if (row := tx.one("claimable", agent=agent, owner=owner))]
    if not found:
        return None
    _, session, whose = min(found)
    return claim_in(tx, session, whose, agents)


def claim_in(tx: Transaction, session: SessionId, owner: str, agents: Collection[str]) -> OpenTurn | None:
    """Start the next waiting turn of a session if one of these agents can answer it."""
    door = find(tx, session, owner)
    running.reap(tx, door)
    opened = running.go_on(tx, door, agents)
    leave(tx, door)
    return opened


def enter(tx: Transaction, request: Request) -> Door:
    """The door of the session that the request is for, open and at the revision the sender expects."""
    if isinstance(request.to, Address):
        door, _, _ = sessions.enter(tx, request.to, request.owner, request.ttl)
    else:
        door = find(tx, request.to, request.owner)
        running.reap(tx, door)
    door.require_open(tx.now)
    door.require_revision(request.expect_revision)
    return door


def requested(tx: Transaction, request: Request) -> Turn | None:
    """The turn that a request became, whatever it said."""
    row = tx.one("turn_of_request", request_key=request.key())
    return None if row is None else TurnRow(*row[1:]).value()


def already(tx: Transaction, request: Request, fingerprint: bytes | None) -> Accepted | None:
    """The answer that this request got when it was first accepted, as it reads now."""
    first = _already(tx, request, fingerprint)
    if first is None:
        return None
    tx.vouch()
    return Accepted(turn=first.value(), session=_session(tx, first, request.owner), repeated=True)


def _already(tx: Transaction, request: Request, fingerprint: bytes | None) -> TurnRow | None:
    """The turn that this request became when it was first accepted."""
    if request.id is None:
        return None
    check_name("the request id", request.id, tx.limits.name_bytes)
    row = tx.one("turn_of_request", request_key=request.key())
    if row is None:
        return None
    if row[0] != fingerprint:
        raise RequestMismatch(f"request {request.id!r} was accepted before with other content, as {row[1]}")
    return TurnRow(*row[1:])


def _session(tx: Transaction, turn: TurnRow, owner: str) -> Session:
    return find(tx, turn.session, owner).value(tx.now)


def _enqueue(tx: Transaction, door: Door, turn: TurnId, request: Request, said: Input) -> TurnRow:
    _make_room(tx, door)
    if request.if_busy == "replace" and door.running is not None:
        ask_to_cancel(tx, door, door.running)
    row = new_row(tx, door, turn, said.agent, "waiting")
    row.format, row.input = said.body
    row.steer = int(request.if_busy == "steer" and door.running is not None)
    door.steering += row.steer
    door.revision += 1
    add(tx, row, request, said.fingerprint, place=door.queued + (0 if request.if_busy in _NEXT else BEHIND))
    messages.keep_blobs(tx, door.owner, turn, said.parts)
    events.tell(tx, door, TurnSubmitted(said.agent, said.parts, bool(row.steer)), turn)
    return row


def _enqueue_record(
    tx: Transaction,
    door: Door,
    turn: TurnId,
    request: Request,
    said: Sequence[NewMessage],
    *,
    fingerprint: bytes | None,
) -> TurnRow:
    _make_room(tx, door)
    door.revision += 1
    row = new_row(tx, door, turn, None, "waiting")
    row.input = encode_record(said).decode()
    add(tx, row, request, fingerprint, place=door.queued + BEHIND)
    for message in said:
        messages.keep_blobs(tx, door.owner, turn, message.parts)
    events.tell(tx, door, TurnSubmitted(None, said[0].parts), turn)
    return row


def _make_room(tx: Transaction, door: Door) -> None:
    if door.waiting >= tx.limits.waiting_turns:
        raise SessionBusy(f"{door.waiting} turns already wait in {door.id}", hint="Wait, or withdraw some of them.")
    door.waiting += 1
    door.queued += 1


def ask_to_cancel(tx: Transaction, door: Door, turn: TurnId) -> None:
    """Leave word for the holder of the running turn. The caller writes the door."""
    if door.cancelling:
        return
    door.cancelling = 1
    door.revision += 1
    tx.run("ask_to_cancel", turn=turn)
    events.tell(tx, door, CancelRequested(), turn)


def new_row(tx: Transaction, door: Door, turn: TurnId, agent: str | None, state: TurnState) -> TurnRow:
    """The row of a turn that is about to be told of. Whoever is asked is the session's agent from now on."""
    if agent not in (None, COMPACTOR, door.agent):
        door.agent = agent
        tx.run("set_agent", session=door.id, agent=agent)
    ended = state == "ended"
    return TurnRow(
        id=turn,
        session=door.id,
        root=turn,
        agent=agent,
        state=state,
        outcome="completed" if ended else None,
        event=door.last_event + 1,
        created_at=tx.now,
        started_at=None if state == "waiting" else tx.now,
        ended_at=tx.now if ended else None,
    )


def add(tx: Transaction, row: TurnRow, request: Request, fingerprint: bytes | None, place: int = 0) -> None:
    """Store a new turn's row."""
    row.request_id = request.id
    tx.run(
        "add_turn",
        turn=row.id,
        session=row.session,
        root=row.root,
        agent=row.agent,
        state=row.state,
        outcome=row.outcome,
        steer=row.steer,
        place=place,
        event=row.event,
        first_event=row.first_event,
        format=row.format,
        input=row.input,
        request_key=request.key(),
        request_id=request.id,
        request_hash=fingerprint,
        now=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def _check_record(tx: Transaction, said: Sequence[NewMessage]) -> list[Written]:
    if not isinstance(said, Sequence) or not said:
        raise InvalidPayload("there are no messages to record", hint="Pass a list of messages.")
    if len(said) > tx.limits.messages_per_record:
        raise TooLarge(f"{len(said):,} messages at once; at most {tx.limits.messages_per_record:,} are accepted")
    return [_check_message(tx, message) for message in said]


def _check_message(tx: Transaction, message: NewMessage) -> Written:
    if not isinstance(message, NewMessage):
        raise InvalidPayload(f"{type(message).__name__} is no message", hint="Use message.user(…) and its like.")
    if not isinstance(message.parts, tuple | list) or not isinstance(message.partial, bool):
        raise InvalidPayload(f"{message!r} is malformed", hint="Use message.user(…) and its like.")
    body = encode_parts(parts_of(message.parts), tx.limits)
    check_role(message.role, message.parts)
    return Written(message, body)
