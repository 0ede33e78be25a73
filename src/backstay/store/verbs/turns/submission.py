"""Submission: the input of a person is accepted; it starts a turn, waits, steers, or goes to a fork."""

from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from backstay.errors import InvalidPayload, RequestMismatch, SessionBusy, TooLarge
from backstay.model.addresses.address import Address
from backstay.model.codec import Encoded, check_name, content_hash, encode_parts
from backstay.model.content import Json, Part, check_input, check_role, parts_of
from backstay.model.event import CancelRequested, TurnSubmitted
from backstay.model.ids import MessageId, SessionId, TurnId
from backstay.model.message import NewMessage
from backstay.model.session import Ttl
from backstay.model.turn import BACK_OF_QUEUE, COMPACTOR, Accepted, IfBusy, OpenTurn, Recorded, TurnInfo, TurnState
from backstay.store.engine import Transaction
from backstay.store.rows import Rows, value, values
from backstay.store.session_row import LockedRow, SessionRow, SessionScope, lock_session
from backstay.store.verbs import agent_registry, owner_totals, session_changes, session_queries
from backstay.store.verbs.history import branches
from backstay.store.verbs.session_ttl import set_ttl
from backstay.store.verbs.turns import event_log, lifecycle, messages
from backstay.store.verbs.turns.call_pairing import check_pairing
from backstay.store.verbs.turns.messages import Written
from backstay.store.verbs.turns.turn_row import TurnRow, encode_record, find_row

# The agent that answers where neither the request nor the session names one.
DEFAULT_AGENT = "default"

# The length of each key of a request, and of how many addresses of its session a key is stored.
KEY_BYTES = 32
_MOST_ADDRESSES = 100

# A turn that is sent with one of these runs before the others that wait.
_NEXT = ("steer", "replace")


class _RequestedTurn(TurnRow, kw_only=True):
    """The row of a turn, with the key and the hash of its request."""

    request_key: bytes | None
    request_hash: bytes | None


class _Claimable(NamedTuple):
    """A waiting turn that can start now."""

    turn: TurnId
    session: SessionId
    owner: str


# Stands for the destination in the key of a request that began a session.
_NEW_SESSION = "new session"
_TURN_OF_REQUEST = Rows("turn_of_request", _RequestedTurn)
_CLAIMABLE = Rows("claimable", _Claimable)


class TurnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a sender, without its content. `start` names the agents that the sending worker serves.

    Without a destination, the input begins a new session.
    """

    to: Address | SessionId | None
    owner: str
    id: str | None = None
    agent: str | None = None
    if_busy: IfBusy = "enqueue"
    allow_unserved: bool = True
    expect_revision: int | None = None
    ttl: Ttl | None = None
    start: bool | Collection[str] = False

    def __post_init__(self) -> None:
        if self.if_busy not in ("enqueue", "reject", "steer", "replace", "fork"):
            raise InvalidPayload(f"if_busy is {self.if_busy!r}", hint="Use enqueue, reject, steer, replace or fork.")

    def starts(self, agent: str) -> bool:
        """Whether the sending worker serves this agent now. The names are read at each call: they may change."""
        return self.start if isinstance(self.start, bool) else agent in self.start

    @property
    def conditional(self) -> bool:
        """Whether the sender expects that the request may be rejected."""
        return self.if_busy == "reject" or self.expect_revision is not None

    def fingerprint(self, *content: Json) -> bytes | None:
        """The hash that distinguishes a repetition of this request from another request with its id."""
        return None if self.id is None else content_hash(*content)


def request_key(owner: str, scope: str, id: str) -> bytes:
    """The destination of a request of this owner: the key of an address, or a session without one."""
    return sha256(f"{owner}\0{scope}\0{id}".encode()).digest()


def _request_keys(tx: Transaction, request: TurnRequest) -> list[bytes]:
    """The keys that a repetition of this request may have: one for the session, and one for each of its addresses.

    All are stored, because addresses outlive their session, and later each may lead to another one. The destination
    that the sender named comes first; for a session that is its first address.
    """
    if request.id is None:
        return []
    to = request.to
    if to is None:
        return [request_key(request.owner, _NEW_SESSION, request.id)]
    if isinstance(to, Address):
        named = [to.key]
        spellings = values(tx, "addresses_beside", owner=request.owner, key=bytes.fromhex(to.key))
    else:
        named = []
        spellings = values(tx, "addresses_of", session=to, owner=request.owner)
    scopes = [*named, *(sha256(spelling.encode()).hexdigest() for spelling in spellings[:_MOST_ADDRESSES])]
    if not isinstance(to, Address):
        scopes.append(to)
    return [request_key(request.owner, scope, request.id) for scope in dict.fromkeys(scopes)]


def first_key(keys: bytes) -> bytes:
    """The first of the stored keys of a request."""
    return keys[:KEY_BYTES]


class Input(NamedTuple):
    """An input and its agent; also encoded, and with the hash that a repetition has."""

    agent: str
    parts: tuple[Part, ...]
    body: Encoded
    fingerprint: bytes | None


class Sent(NamedTuple):
    """An input that a session has received: its turn, the session, the turn that it opened, and the fork's source."""

    row: TurnRow
    session_row: SessionRow
    opened: OpenTurn | None
    forked_from: SessionId | None

    def accepted(self, now: int) -> Accepted:
        """The answer to the sender, once the session row is written."""
        session = self.session_row.value(now)
        return Accepted(turn=self.row.value(), session=session, opened=self.opened, forked_from=self.forked_from)


def submit(tx: Transaction, request: TurnRequest, parts: tuple[Part, ...]) -> Accepted:
    """Accept an input. Its turn starts at once if no turn runs or waits and this worker is to run it."""
    if request.agent is not None:
        agent_registry.check_agent_name(tx, request.agent)
    body = encode_parts(parts, tx.limits)
    check_input(parts)
    fingerprint = request.fingerprint("submit", body.text)
    first = repeated_result(tx, request, fingerprint)
    if first is not None:
        return first
    with lock_destination(tx, request) as session_row:
        forks = request.if_busy == "fork" and session_row.running is not None
        agent = request.agent or _agent_of(tx, session_row)
        size = body.size + (
            0 if _starts_at_once(session_row, request, agent, fork=forks) else _size_waiting(agent, parts)
        )
        owner_totals.require_text(tx, session_row, size, fork=forks)
        if not (request.allow_unserved or request.starts(agent)):
            agent_registry.check_served(tx, agent)
        sent = send(tx, session_row, request, Input(agent, parts, body, fingerprint))
    return sent.accepted(tx.now)


def _starts_at_once(session_row: SessionRow, request: TurnRequest, agent: str, *, fork: bool) -> bool:
    return request.starts(agent) and (fork or (session_row.running is None and not session_row.queue))


def _size_waiting(agent: str | None, parts: tuple[Part, ...]) -> int:
    """The bytes of the event that shows a waiting input."""
    return event_log.text_size(TurnSubmitted(agent, parts, steer=True))


def _agent_of(tx: Transaction, session_row: SessionRow) -> str:
    """The agent of the session: the agent of the running turn, or else of the last one."""
    answering = None if session_row.running is None else find_row(tx, session_row.running, session_row.owner).agent
    last_agent = session_row.agent if answering in (None, COMPACTOR) else answering
    return last_agent or DEFAULT_AGENT


def send(tx: Transaction, session_row: LockedRow, request: TurnRequest, input: Input) -> Sent:
    """Give an input to a locked session, or to a fork of it if it is busy and the sender asked for that."""
    busy = session_row.running is not None
    if busy and request.if_busy == "reject":
        session_row.require_free()
    if busy and request.if_busy == "fork":
        with branches.fork_session(tx, session_row, None) as forked:
            return _deliver(tx, forked, request, input, busy=False, source=session_row.id)
    return _deliver(tx, session_row, request, input, busy=busy)


def _deliver(
    tx: Transaction,
    session_row: LockedRow,
    request: TurnRequest,
    input: Input,
    *,
    busy: bool,
    source: SessionId | None = None,
) -> Sent:
    session_row.touch(tx.now)
    row, opened = _open_or_enqueue(tx, session_row, request, input, busy=busy)
    return Sent(row, session_row, opened, source)


def _open_or_enqueue(
    tx: Transaction, session_row: LockedRow, request: TurnRequest, input: Input, *, busy: bool
) -> tuple[TurnRow, OpenTurn | None]:
    """Start the turn if none runs or waits. Otherwise it waits, and the worker starts the first turn of the queue."""
    turn = tx.ids.turn()
    starts = not busy and request.starts(input.agent)
    if starts and not session_row.queue:
        words = Written(NewMessage(role="user", parts=input.parts), input.body)
        opened = lifecycle.open_turn(tx, session_row, turn, input.agent, words, root=turn)
        row = new_row(tx, session_row, turn, input.agent, "running")
        row.event = row.first_event = opened.event
        add(tx, row, request, input.fingerprint)
        return row, opened
    row = _enqueue(tx, session_row, turn, request, input)
    next_up = lifecycle.start_next(tx, session_row, (input.agent,)) if starts else None
    return (find_row(tx, turn, session_row.owner) if next_up is not None else row), next_up


def record(tx: Transaction, request: TurnRequest, new_messages: Sequence[NewMessage]) -> Recorded:
    """Append finished messages as one turn. Behind a running turn they wait for its end."""
    checked = _check_record(tx, new_messages)
    fingerprint = request.fingerprint("record", [(message.role, body.text) for message, body in checked])
    first = repeated_result(tx, request, fingerprint)
    if first is not None:
        return Recorded(turn=first.turn, session=first.session, messages=(), repeated=True)
    with lock_destination(tx, request) as session_row:
        owner_totals.require_text(tx, session_row, _size_of_record(session_row, checked))
        session_row.touch(tx.now)
        row, ids = _record_in(tx, session_row, request, checked, fingerprint)
    return Recorded(turn=row.value(), session=session_row.value(tx.now), messages=tuple(ids))


def _size_of_record(session_row: SessionRow, written: Sequence[Written]) -> int:
    if session_row.running is None and not session_row.queue:
        return sum(body.size for _, body in written)
    waiting = [message for message, _ in written]
    return len(encode_record(waiting).encode()) + _size_waiting(None, waiting[0].parts)


def _record_in(
    tx: Transaction, session_row: LockedRow, request: TurnRequest, written: Sequence[Written], fingerprint: bytes | None
) -> tuple[TurnRow, Sequence[MessageId]]:
    new_messages = [message for message, _ in written]
    turn = tx.ids.turn()
    if session_row.running is None and not session_row.queue:
        check_pairing(new_messages, open_calls=lambda: branches.open_calls(tx, session_row))
        row = new_row(tx, session_row, turn, None, "ended")
        add(tx, row, request, fingerprint)
        return row, lifecycle.add_recorded(tx, session_row, turn, written)
    if request.if_busy == "reject":
        raise SessionBusy(f"a turn runs or waits in {session_row.id}")
    check_pairing(new_messages, open_calls=frozenset())
    return _enqueue_record(tx, session_row, turn, request, new_messages, fingerprint=fingerprint), ()


def is_awaited(tx: Transaction, names: Collection[str]) -> bool:
    """Whether a turn waits for one of these agents, in a busy session or not."""
    return any(tx.one("awaited", agent=name) for name in names)


def has_work(tx: Transaction, names: Collection[str], except_owners: Collection[str], owner: str | None = None) -> bool:
    """Whether a turn waits that one of these agents can answer now, of this owner or of all but the excepted."""
    return any(_claimable(tx, name, owner, except_owners) for name in names)


def claim(
    tx: Transaction, names: Collection[str], owner: str | None, except_owners: Collection[str]
) -> OpenTurn | None:
    """Start the oldest waiting turn that one of these agents can answer, of none of the excepted owners."""
    found = [row for name in names if (row := _claimable(tx, name, owner, except_owners))]
    if not found:
        return None
    # Ids of turns grow with time, and the turn is the first field: the smallest is the oldest.
    oldest = min(found)
    return claim_in(tx, oldest.session, oldest.owner, names)


def _claimable(tx: Transaction, agent: str, owner: str | None, except_owners: Collection[str]) -> _Claimable | None:
    excepted = msgspec.json.encode([*except_owners]).decode()
    return _CLAIMABLE.one(tx, agent=agent, owner=owner, except_owners=excepted)


def claim_in(tx: Transaction, session: SessionId, owner: str, names: Collection[str]) -> OpenTurn | None:
    """Start the next waiting turn of a session if one of these agents can answer it."""
    with lifecycle.lock_and_reap(tx, session, owner) as session_row:
        return lifecycle.start_next(tx, session_row, names)


def lock_destination(tx: Transaction, request: TurnRequest) -> SessionScope:
    """Lock the session that the request is sent to, or a new one. It must be open and at the expected revision."""
    if request.to is None:
        scope = session_changes.begin(tx, request.owner, request.ttl)
    elif isinstance(request.to, Address):
        scope = session_changes.lock_at(tx, request.to, request.owner, request.ttl).scope
    else:
        scope = lifecycle.lock_and_reap(tx, request.to, request.owner)
        if request.ttl is not None:
            scope.row.require_open(tx.now)
            set_ttl(scope.row, request.ttl)
    scope.row.require_open(tx.now)
    scope.row.require_revision(request.expect_revision)
    return scope


def requested(tx: Transaction, request_id: str, owner: str) -> TurnInfo | None:
    """The turn of a request, with any content and destination."""
    row = _TURN_OF_REQUEST.one(tx, owner=owner, request_id=request_id)
    return None if row is None else session_queries.show(tx, row, owner)


def is_known(tx: Transaction, owner: str, request_id: str) -> bool:
    """Whether this owner has used a request id."""
    return _TURN_OF_REQUEST.one(tx, owner=owner, request_id=request_id) is not None


def repeated_result(tx: Transaction, request: TurnRequest, fingerprint: bytes | None) -> Accepted | None:
    """The result of a repeated request, with its first turn as it is now; None if the request is new."""
    first = _first_turn(tx, request, fingerprint)
    if first is None:
        return None
    tx.commit_unchanged()
    turn: TurnRow = first
    with lock_session(tx, first.session, request.owner) as session_row:
        if lifecycle.reap(tx, session_row):
            turn = find_row(tx, first.id, request.owner)
    return Accepted(turn=turn.value(), session=session_row.value(tx.now), repeated=True)


def _first_turn(tx: Transaction, request: TurnRequest, fingerprint: bytes | None) -> TurnRow | None:
    """The first turn of a repeated request. Raises `RequestMismatch` if its id was used for another request."""
    if request.id is None:
        return None
    check_name("the request id", request.id, tx.limits.name_bytes)
    if isinstance(request.to, Address):
        tx.expect("addresses_beside", owner=request.owner, key=bytes.fromhex(request.to.key))
    elif request.to is not None:
        tx.expect("addresses_of", session=request.to, owner=request.owner)
        tx.expect("session_row", session=request.to, owner=request.owner)
    first = _TURN_OF_REQUEST.one(tx, owner=request.owner, request_id=request.id)
    if first is None:
        return None
    if first.request_hash != fingerprint:
        raise RequestMismatch(f"request {request.id!r} was accepted before with other content, as {first.id}")
    stored = _separate(first.request_key or b"")
    if stored.isdisjoint(_request_keys(tx, request)) and not _leads_to(tx, request, first.session):
        raise RequestMismatch(f"request {request.id!r} was accepted before for {first.session}, as {first.id}")
    return first


def _separate(keys: bytes) -> set[bytes]:
    """The stored keys of a request, which stand one after the other."""
    return {keys[start : start + KEY_BYTES] for start in range(0, len(keys), KEY_BYTES)}


def _leads_to(tx: Transaction, request: TurnRequest, session: SessionId) -> bool:
    """Whether a request is sent to this session, to its source, or to a fork of it."""
    if isinstance(request.to, Address):
        found = session_changes.ADDRESS.one(tx, owner=request.owner, key=bytes.fromhex(request.to.key))
        to = None if found is None else found.session
    else:
        to = request.to
    return to is not None and (to == session or _source(tx, to) == session or _source(tx, session) == to)


def _source(tx: Transaction, session: SessionId) -> SessionId | None:
    source: SessionId | None = value(tx, "source_of", session=session)
    return source


def _enqueue(tx: Transaction, session_row: LockedRow, turn: TurnId, request: TurnRequest, input: Input) -> TurnRow:
    _make_room(tx, session_row)
    if request.if_busy == "replace" and session_row.running is not None:
        request_cancel(tx, session_row, session_row.running)
    row = new_row(tx, session_row, turn, input.agent, "waiting")
    row.format, row.input = input.body
    session_row.text_bytes += row.input_bytes
    row.steer = int(request.if_busy == "steer" and session_row.running is not None)
    session_row.steering += row.steer
    session_row.revision += 1
    add(
        tx,
        row,
        request,
        input.fingerprint,
        place=session_row.queued + (0 if request.if_busy in _NEXT else BACK_OF_QUEUE),
    )
    messages.reference_blobs(tx, session_row.owner, turn, input.parts)
    event_log.append_event(tx, session_row, TurnSubmitted(input.agent, input.parts, bool(row.steer)), turn)
    return row


def _enqueue_record(
    tx: Transaction,
    session_row: LockedRow,
    turn: TurnId,
    request: TurnRequest,
    new_messages: Sequence[NewMessage],
    *,
    fingerprint: bytes | None,
) -> TurnRow:
    _make_room(tx, session_row)
    session_row.revision += 1
    row = new_row(tx, session_row, turn, None, "waiting")
    row.input = encode_record(new_messages)
    session_row.text_bytes += row.input_bytes
    add(tx, row, request, fingerprint, place=session_row.queued + BACK_OF_QUEUE)
    for message in new_messages:
        messages.reference_blobs(tx, session_row.owner, turn, message.parts)
    event_log.append_event(tx, session_row, TurnSubmitted(None, new_messages[0].parts), turn)
    return row


def _make_room(tx: Transaction, session_row: LockedRow) -> None:
    if session_row.waiting >= tx.limits.waiting_turns:
        raise SessionBusy(
            f"{session_row.waiting} turns already wait in {session_row.id}", hint="Wait, or withdraw some of them."
        )
    session_row.waiting += 1
    session_row.queued += 1


def request_cancel(tx: Transaction, session_row: LockedRow, turn: TurnId) -> None:
    """Store a cancel request for the holder of the running turn; it stays until the turn ends."""
    if session_row.cancelling:
        return
    session_row.cancelling = 1
    session_row.revision += 1
    tx.run("request_cancel", turn=turn)
    event_log.append_event(tx, session_row, CancelRequested(), turn)


def new_row(tx: Transaction, session_row: LockedRow, turn: TurnId, agent: str | None, state: TurnState) -> TurnRow:
    """The row of a new turn, whose event comes next. Its agent becomes the agent of the session."""
    if agent not in (None, COMPACTOR, session_row.agent):
        session_row.agent = agent
    ended = state == "ended"
    return TurnRow(
        id=turn,
        session=session_row.id,
        root=turn,
        agent=agent,
        state=state,
        outcome="completed" if ended else None,
        event=session_row.last_event + 1,
        created_at=tx.now,
        started_at=None if state == "waiting" else tx.now,
        ended_at=tx.now if ended else None,
    )


def add(tx: Transaction, row: TurnRow, request: TurnRequest, fingerprint: bytes | None, place: int = 0) -> None:
    """Store the row of a new turn."""
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
        request_owner=None if request.id is None else request.owner,
        request_key=b"".join(_request_keys(tx, request)) or None,
        request_id=request.id,
        request_hash=fingerprint,
        now=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def _check_record(tx: Transaction, new_messages: Sequence[NewMessage]) -> list[Written]:
    if not isinstance(new_messages, Sequence) or not new_messages:
        raise InvalidPayload("the list of messages to record is empty", hint="Pass a list of messages.")
    if len(new_messages) > tx.limits.messages_per_record:
        raise TooLarge(
            f"{len(new_messages):,} messages at once; at most {tx.limits.messages_per_record:,} are accepted"
        )
    return [_check_message(tx, message) for message in new_messages]


def _check_message(tx: Transaction, message: NewMessage) -> Written:
    if not isinstance(message, NewMessage):
        raise InvalidPayload(
            f"{type(message).__name__} is not a message",
            hint="Use message.user(…), message.assistant(…) or message.tool(…).",
        )
    if not isinstance(message.parts, tuple | list) or not isinstance(message.partial, bool):
        raise InvalidPayload(
            f"{message!r} is malformed", hint="Use message.user(…), message.assistant(…) or message.tool(…)."
        )
    body = encode_parts(parts_of(message.parts), tx.limits)
    check_role(message.role, message.parts)
    return Written(message, body)
