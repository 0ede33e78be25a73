"""The steps of an import: the rows of an exported session are written in many short transactions.

The document was inspected before, so its rows fit together. They are written under sessions that count as deleted, and
`show` makes them visible. Until then they belong to an import that has to renew its lease; an import that stands still
is given up and cleared away.
"""

from collections.abc import Callable, Iterable, Sequence

from backstay.errors import Conflict
from backstay.model.addresses.address import Address
from backstay.model.codec import FORMAT, encode_metadata, encode_names, encode_usage, write_parts
from backstay.model.documents.document import (
    TO_SESSION,
    ExportedAddress,
    ExportedEvent,
    ExportedSession,
    ExportedTurn,
    ExportedWindow,
    Reference,
)
from backstay.model.documents.records import Header
from backstay.model.event import TurnHeld
from backstay.model.ids import ImportId, SessionId, TurnId, UploadId, WindowId
from backstay.model.marks import Marks
from backstay.model.message import Message
from backstay.model.session import SessionInfo
from backstay.model.turn import Interrupted, ToolCallRecord, code_and_hint_of
from backstay.store.engine import Transaction
from backstay.store.session_row import find, lock_session
from backstay.store.verbs import blob_store, owner_totals
from backstay.store.verbs.gateways import notifications
from backstay.store.verbs.history import window_segments
from backstay.store.verbs.history.window_segments import END, WindowSegment
from backstay.store.verbs.session_changes import ADDRESS
from backstay.store.verbs.turns import event_log, lifecycle, messages
from backstay.store.verbs.turns.event_log import MessageRange
from backstay.store.verbs.turns.submission import is_known, request_key
from backstay.store.verbs.turns.turn_row import encode_record

# An import without a step for this long is given up: its process is dead or stopped.
LEASE_MS = 60_000


def begin(tx: Transaction, import_id: ImportId, header: Header, owner: str, size: int) -> bool:
    """Write the hidden rows of the session and of its ancestors. `size` is the number of bytes that it will store.

    Returns False, and writes nothing, if one of these sessions exists already.
    """
    family = [header.session.id, *header.ancestors]
    if any(tx.one("session_taken", session=session) is not None for session in family):
        return False
    owner_totals.require_room(tx, owner, adding=size)
    owner_totals.require_session(tx, owner)
    source: SessionId | None = None
    for session in reversed(family):
        tx.run("stage_session", session=session, owner=owner, window=tx.ids.window(), source=source, now=tx.now)
        tx.run("add_import", session=session, import_id=import_id, owner=owner, until=tx.now + LEASE_MS)
        source = session
    return True


def renew_lease(tx: Transaction, import_id: ImportId) -> None:
    """Renew the lease of the import. Raises `Conflict` if it was given up."""
    if not tx.changed("renew_import", import_id=import_id, until=tx.now + LEASE_MS, now=tx.now):
        raise Conflict("the import made no progress for too long and was given up", hint="Import the document again.")


def any_taken(tx: Transaction, query: str, name: str, ids: Sequence[str]) -> bool:
    """Whether a row has one of these ids."""
    return any(tx.one(query, **{name: one}) is not None for one in ids)


def any_requested(tx: Transaction, owner: str, requests: Sequence[str]) -> bool:
    """Whether this owner has used one of these request ids."""
    return any(is_known(tx, owner, name) for name in requests)


# --- rows -------------------------------------------------------------------------------------------------------------


def write_window(tx: Transaction, window: ExportedWindow) -> None:
    """Write a window without its segments, which may refer to later windows."""
    tx.run(
        "add_window",
        window=window.id,
        session=window.session,
        parent=window.parent,
        reason=window.reason,
        start=window.start,
        base=None if window.base is None else window.base.window,
        base_until=None if window.base is None else window.base.until,
        summarises=None if window.summarises is None else window.summarises.window,
        summarises_until=None if window.summarises is None else window.summarises.until,
        event=window.event,
        now=window.at,
    )


def write_segments(tx: Transaction, window: ExportedWindow) -> None:
    """Write the segments of a window."""
    for part in window.segments:
        high = END if part.high is None else part.high
        window_segments.add_segment(tx, window.id, WindowSegment(part.start, part.source, part.low, high))


def write_chunk(tx: Transaction, upload: UploadId, owner: str, start: int, data: bytes) -> None:
    """Write some bytes of an attachment, in chunks of the size that uploads have."""
    size = tx.limits.chunk_bytes
    for offset in range(0, len(data), size):
        blob_store.add_chunk(tx, upload, owner, start + offset, data[offset : offset + size])


def write_message(tx: Transaction, window: WindowId, message: Message, owner: str) -> None:
    """Write a message. Its session counts the text when it is shown."""
    body = write_parts(message.parts)
    tx.run(
        "add_message",
        window=window,
        position=message.position,
        message=message.id,
        turn=message.turn,
        role=message.role,
        partial=message.partial,
        format=body.format,
        body=body.text,
        now=message.at,
    )
    messages.reference_blobs(tx, owner, message.id, message.parts)


def write_turn(tx: Transaction, session: SessionId, turn: ExportedTurn, owner: str) -> None:
    """Write a turn. Its request finds it only after the session is shown."""
    version, waits_with = _waits_with(turn)
    request, outcome = turn.request, turn.outcome
    code, hint = code_and_hint_of(outcome)
    tx.run(
        "import_turn",
        turn=turn.id,
        session=session,
        root=turn.root,
        agent=turn.agent,
        state=turn.state,
        outcome=None if outcome is None else str(outcome.__struct_config__.tag),
        reason="" if outcome is None else outcome.reason,
        code=code,
        hint=hint,
        steer=int(turn.steer),
        taken_by=turn.taken_by,
        cancel_requested=int(turn.cancel_requested),
        place=turn.place,
        event=turn.event,
        first_event=turn.first_event,
        format=version,
        input=waits_with,
        request_owner=None,
        request_key=_request_key(session, turn, owner),
        request_id=None if request is None else request.id,
        request_hash=None if request is None else bytes.fromhex(request.hash),
        usage=encode_usage(turn.usage),
        created_at=turn.created_at,
        started_at=turn.started_at,
        ended_at=turn.ended_at,
        forgotten=int(turn.forgotten),
        # Held, so that an interrupted turn is not resumed automatically.
        held=int(is_held(turn) or isinstance(outcome, Interrupted)),
    )
    messages.reference_blobs(tx, owner, turn.id, turn.waits_with())


def waiting_bytes(turn: ExportedTurn) -> int:
    """The bytes of text that the row of a waiting turn stores."""
    _, waits_with = _waits_with(turn)
    return len((waits_with or "").encode())


def is_held(turn: ExportedTurn) -> bool:
    """Whether an imported turn waits for a person to release it."""
    return turn.state == "waiting" and turn.taken_by is None


def _waits_with(turn: ExportedTurn) -> tuple[int, str | None]:
    """The encoded content of a waiting turn."""
    if turn.record is not None:
        return FORMAT, encode_record(turn.record)
    return (FORMAT, None) if turn.input is None else write_parts(turn.input)


def _request_key(session: SessionId, turn: ExportedTurn, owner: str) -> bytes | None:
    """The key of the turn's request; without a scope, one that no later request can have."""
    if turn.request is None:
        return None
    sent_to = turn.request.scope
    if sent_to is None:
        return request_key(owner, turn.id, turn.request.id)
    scope = session if sent_to == TO_SESSION else Address.parse(sent_to).key
    return request_key(owner, scope, turn.request.id)


def write_call(tx: Transaction, call: ToolCallRecord) -> None:
    """Write an entry of the ledger."""
    tx.run(
        "import_call",
        root=call.root,
        ordinal=call.ordinal,
        turn=call.turn,
        call=call.call,
        name=call.name,
        arguments_hash=call.arguments_hash,
        approval=call.approval,
        effect=call.effect,
        started_at=call.started_at,
        ended_at=call.ended_at,
        run_again=call.run_again,
    )


def lock_feed(tx: Transaction, import_id: ImportId) -> None:
    """Hold the feed of the owner: it shows later events once the session is visible.

    This is committed before the first event is written, so no reader of the feed passes these events.
    """
    tx.run("lock_feed", import_id=import_id)


def write_tombstone(tx: Transaction, ancestor: SessionId) -> None:
    """Write the only event of an ancestor: in this store it looks like a deleted session."""
    event_log.add_tombstone(tx, ancestor, number=1, fence=1)


def write_event(tx: Transaction, session: SessionId, event: ExportedEvent) -> None:
    """Write an event under its own number."""
    event_log.add(
        tx,
        session,
        event.body,
        number=event.number,
        last=event.last,
        fence=event.fence,
        turn=event.turn,
        message_range=_range_of(event.messages),
        at=event.at,
    )


def _range_of(reference: Reference | None) -> MessageRange | None:
    return None if reference is None else MessageRange(reference.window, reference.low, reference.high)


# --- the last step ----------------------------------------------------------------------------------------------------


class ShownSession:
    """The values of the session for the last step, collected while its rows were written."""

    def __init__(self, header: Header, *, start: int, length: int, text_bytes: int) -> None:
        self.header, self.start, self.length, self.text_bytes = header, start, length, text_bytes
        self.agent = header.session.agent
        self.held: list[TurnId] = []
        self.newly_held: list[TurnId] = []
        self.running: TurnId | None = None
        # The turns that a redelivery of their request finds, and the ids of these.
        self.requested: Callable[[], Iterable[tuple[TurnId, str]]] = tuple


def show(tx: Transaction, import_id: ImportId, shown: ShownSession, owner: str) -> tuple[SessionInfo, tuple[str, ...]]:
    """Make the session visible to its owner. Also returns the addresses that lead to it now."""
    header, session = shown.header, shown.header.session.id
    renew_lease(tx, import_id)
    owner_totals.require_room(tx, owner, adding=shown.text_bytes)
    _show_session(tx, shown, header.session)
    owner_totals.add_session(tx, owner, session, shown.text_bytes)
    _write_marks(tx, session, owner, header.marks)
    here = [address.spelling for address in header.addresses if _point_here(tx, session, address, owner)]
    for turn, request in shown.requested():
        # Old documents have several turns with one request id: the request finds the first.
        if not is_known(tx, owner, request):
            tx.run("own_request", turn=turn, owner=owner)
    tx.run("drop_import", import_id=import_id)
    _hold(tx, session, shown.newly_held, owner)
    if shown.running is not None:
        _end_running(tx, session, shown.running, owner)
    found = find(tx, session, owner)
    notifications.skip_history(tx, session, owner, found.last_event)
    return found.value(tx.now), tuple(here)


def _show_session(tx: Transaction, shown: ShownSession, facts: ExportedSession) -> None:
    held = len(shown.held)
    tx.run(
        "show_session",
        session=facts.id,
        state=facts.state,
        revision=facts.revision,
        context=facts.context,
        fence=facts.fence,
        last_event=facts.last_event,
        window=facts.window,
        start=shown.start,
        length=shown.length,
        waiting=held,
        steering=0,
        held=held,
        queued=facts.queued,
        turns=facts.turns,
        activity=facts.activity,
        touched_at=facts.touched_at,
        preview=facts.preview,
        title=facts.title,
        title_by=facts.title_by,
        pinned=int(facts.pinned),
        archived=int(facts.archived),
        tags=encode_names(facts.tags),
        family=facts.family,
        place=facts.place,
        idle_ttl=facts.idle_ttl,
        expires_by=facts.expires_by,
        created_at=facts.created_at,
        active_at=facts.active_at,
        ended_at=facts.ended_at,
        metadata=encode_metadata(facts.metadata),
        agent=shown.agent,
        text_bytes=shown.text_bytes,
    )


def _write_marks(tx: Transaction, session: SessionId, owner: str, marks: Marks) -> None:
    if marks.draft:
        tx.run("set_draft", session=session, owner=owner, draft=marks.draft, now=tx.now)
    if marks.read_to:
        tx.run("set_read", session=session, owner=owner, read_to=marks.read_to, now=tx.now)


def _point_here(tx: Transaction, session: SessionId, address: ExportedAddress, owner: str) -> bool:
    """Point an address to the session, unless it leads somewhere already."""
    key = bytes.fromhex(Address.parse(address.spelling).key)
    if ADDRESS.one(tx, owner=owner, key=key) is not None:
        return False
    spelling, generation = address.spelling, address.generation
    pointed = tx.changed(
        "set_address", owner=owner, key=key, spelling=spelling, session=session, generation=generation, before=None
    )
    return pointed > 0


def _hold(tx: Transaction, session: SessionId, turns: Sequence[TurnId], owner: str) -> None:
    """Append to the log that these waiting turns are held."""
    if turns:
        with lock_session(tx, session, owner) as session_row:
            for turn in turns:
                event_log.append_event(tx, session_row, TurnHeld(), turn)
            session_row.revision += 1


def _end_running(tx: Transaction, session: SessionId, turn: TurnId, owner: str) -> None:
    """End a turn that ran when its session was exported: its holder cannot write here."""
    with lock_session(tx, session, owner) as session_row:
        session_row.running = turn
        lifecycle.abandon(tx, session_row, turn, "the session was exported while this turn ran")
    tx.run("hold_turn", turn=turn)
