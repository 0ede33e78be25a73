"""Importing: an exported session becomes one of this store's, whole or not at all.

What comes here was inspected before: it is sound in itself. Here it meets what the store has already.
"""

from collections.abc import Iterable, Sequence

from backstay.model.address import Address
from backstay.model.codec import FORMAT, encode_metadata, encode_names, encode_usage, write_parts
from backstay.model.export import (
    TO_SESSION,
    Export,
    ExportedAddress,
    ExportedBlob,
    ExportedEvent,
    ExportedTurn,
    ExportedWindow,
    Imported,
)
from backstay.model.ids import SessionId
from backstay.model.message import Message
from backstay.model.renewal import renewed, turns_named
from backstay.model.turn import COMPACTOR
from backstay.store.door import find
from backstay.store.engine import Transaction
from backstay.store.verbs import blobs, deletion, events, messages, running, sessions, windows
from backstay.store.verbs.events import Said
from backstay.store.verbs.submitting import request_key
from backstay.store.verbs.turns import encode_record
from backstay.store.verbs.windows import END, Stretch


def import_session(tx: Transaction, export: Export, owner: str) -> Imported:
    """Write the session down for this owner; under new ids if one of its own is taken."""
    copied = _taken(tx, export, owner)
    if copied:
        export = renewed(export, tx.ids)
    _bury_ancestors(tx, export, owner)
    _write_session(tx, export, owner)
    _write_windows(tx, export.windows)
    _write_blobs(tx, export.attachments, owner)
    _write_messages(tx, export.windows, owner)
    for turn in export.turns:
        _write_turn(tx, export.session.id, turn, owner)
    _write_calls(tx, export)
    for event in export.events:
        _write_event(tx, export.session.id, event)
    _write_marks(tx, export, owner)
    here = [address.spelling for address in export.addresses if _lead_here(tx, export.session.id, address, owner)]
    _end_running(tx, export, owner)
    return Imported(
        session=find(tx, export.session.id, owner).value(tx.now),
        copied=copied,
        addresses=tuple(here),
        elsewhere=tuple(address.spelling for address in export.addresses if address.spelling not in here),
    )


def _taken(tx: Transaction, export: Export, owner: str) -> bool:
    """Whether anything here has one of the document's ids, or was asked for by one of its requests."""
    ids = [export.session.id, *export.ancestors]
    said = (message.id for window in export.windows for message in window.messages)
    keys = (_request_key(export.session.id, turn, owner) for turn in export.turns)
    return (
        any(tx.one("session_taken", session=session) for session in ids)
        or any(tx.one("window", window=window.id) for window in export.windows)
        or any(tx.one("message_place", message=message) for message in said)
        or any(tx.one("turn_taken", turn=turn) for turn in turns_named(export))
        or any(tx.one("turn_of_request", request_key=key) for key in keys if key is not None)
    )


def _request_key(session: SessionId, turn: ExportedTurn, owner: str) -> bytes | None:
    """How a redelivery of the turn is known here; without a scope, by a name that nobody can ask for."""
    if turn.request is None:
        return None
    sent_to = turn.request.scope
    if sent_to is None:
        return request_key(owner, turn.id, turn.request.id)
    scope = session if sent_to == TO_SESSION else Address.parse(sent_to).key
    return request_key(owner, scope, turn.request.id)


# --- sessions ---------------------------------------------------------------------------------------------------------


def _bury_ancestors(tx: Transaction, export: Export, owner: str) -> None:
    """Leave the tombstones of those it was forked from, as if they had been deleted here: its past lies with them."""
    source = None
    for ancestor in reversed(export.ancestors):
        sessions.insert(tx, ancestor, owner, window=tx.ids.window(), family=None, place=None, source=source)
        deletion.bury(tx, ancestor)
        source = ancestor


def _write_session(tx: Transaction, export: Export, owner: str) -> None:
    facts = export.session
    here = next(window for window in export.windows if window.id == facts.window)
    queue = [turn for turn in export.turns if turn.state == "waiting" and turn.taken_by is None]
    tx.run(
        "import_session",
        session=facts.id,
        owner=owner,
        state=facts.state,
        revision=facts.revision,
        context=facts.context,
        fence=facts.fence,
        last_event=facts.last_event,
        window=facts.window,
        start=here.start,
        length=max([here.start, *(said.position + 1 for said in here.messages)]),
        waiting=len(queue),
        steering=sum(turn.steer for turn in queue),
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
        source=export.ancestors[0] if export.ancestors else None,
        idle_ttl=facts.idle_ttl,
        expires_by=facts.expires_by,
        created_at=facts.created_at,
        active_at=facts.active_at,
        ended_at=facts.ended_at,
        metadata=encode_metadata(facts.metadata),
        agent=facts.agent or _asked_last(export),
    )


def _asked_last(export: Export) -> str | None:
    """The agent of a session that was exported before that was known of it."""
    asked = [turn for turn in export.turns if turn.agent not in (None, COMPACTOR)]
    return max(asked, key=lambda turn: turn.event).agent if asked else None


def _write_marks(tx: Transaction, export: Export, owner: str) -> None:
    session, left = export.session.id, export.marks
    if left.draft:
        tx.run("set_draft", session=session, owner=owner, draft=left.draft, now=tx.now)
    if left.read_to:
        tx.run("set_read", session=session, owner=owner, read_to=left.read_to, now=tx.now)


def _lead_here(tx: Transaction, session: SessionId, address: ExportedAddress, owner: str) -> bool:
    """Lead an address to the session, unless it leads somewhere already."""
    key = bytes.fromhex(Address.parse(address.spelling).key)
    if tx.one("address", owner=owner, key=key) is not None:
        return False
    spelling, generation = address.spelling, address.generation
    led = tx.run(
        "put_address", owner=owner, key=key, spelling=spelling, session=session, generation=generation, before=None
    )
    return led > 0


def _end_running(tx: Transaction, export: Export, owner: str) -> None:
    """A turn that ran when it was exported runs no more: its holder cannot write here."""
    for turn in export.turns:
        if turn.state == "running":
            door = find(tx, export.session.id, owner)
            door.running = turn.id
            running.abandon(tx, door, turn.id, "it was running when its session was exported")


# --- windows ----------------------------------------------------------------------------------------------------------


def _write_windows(tx: Transaction, exported: Sequence[ExportedWindow]) -> None:
    for window in exported:
        tx.run(
            "add_window",
            window=window.id,
            session=window.session,
            parent=window.parent,
            reason=window.reason,
            start=window.start,
            base=None if window.base is None else window.base.window,
            base_until=None if window.base is None else window.base.until,
            behind=None if window.behind is None else window.behind.window,
            behind_until=None if window.behind is None else window.behind.until,
            event=window.event,
            now=window.at,
        )
    for window in exported:
        for part in window.segments:
            high = END if part.high is None else part.high
            windows.add_segment(tx, window.id, Stretch(part.start, part.source, part.low, high))


def _write_blobs(tx: Transaction, exported: Iterable[ExportedBlob], owner: str) -> None:
    """Store the attachments that this owner does not have yet."""
    size = tx.limits.chunk_bytes
    for blob in exported:
        if tx.one("blob", owner=owner, hash=blob.hash) is None:
            upload = blobs.begin(tx, owner)
            for start in range(0, len(blob.data), size):
                blobs.add_chunk(tx, upload, owner, start, blob.data[start : start + size])
            blobs.finish(tx, upload, owner, blob.hash)


def _write_messages(tx: Transaction, exported: Iterable[ExportedWindow], owner: str) -> None:
    """In the order they were said, so that a search prefers the newest of equals as it did before."""
    said = [(message.at, window, message) for window in exported for message in window.messages]
    for _, window, message in sorted(said, key=lambda one: one[0]):
        _write_message(tx, window, message, owner)


def _write_message(tx: Transaction, window: ExportedWindow, message: Message, owner: str) -> None:
    body = write_parts(message.parts)
    tx.run(
        "add_message",
        window=window.id,
        position=message.position,
        message=message.id,
        turn=message.turn,
        role=message.role,
        partial=message.partial,
        format=body.format,
        body=body.text,
        now=message.at,
    )
    messages.keep_blobs(tx, owner, message.id, message.parts)


# --- turns and events -------------------------------------------------------------------------------------------------


def _write_turn(tx: Transaction, session: SessionId, turn: ExportedTurn, owner: str) -> None:
    version, waits_with = _waits_with(turn)
    request, outcome = turn.request, turn.outcome
    tx.run(
        "import_turn",
        turn=turn.id,
        session=session,
        root=turn.root,
        agent=turn.agent,
        state=turn.state,
        outcome=None if outcome is None else str(outcome.__struct_config__.tag),
        reason="" if outcome is None else outcome.reason,
        steer=int(turn.steer),
        taken_by=turn.taken_by,
        cancel_requested=int(turn.cancel_requested),
        place=turn.place,
        event=turn.event,
        first_event=turn.first_event,
        format=version,
        input=waits_with,
        request_key=_request_key(session, turn, owner),
        request_id=None if request is None else request.id,
        request_hash=None if request is None else bytes.fromhex(request.hash),
        usage=encode_usage(turn.usage),
        created_at=turn.created_at,
        started_at=turn.started_at,
        ended_at=turn.ended_at,
        forgotten=int(turn.forgotten),
    )
    messages.keep_blobs(tx, owner, turn.id, turn.waits_with())


def _waits_with(turn: ExportedTurn) -> tuple[int, str | None]:
    """What a waiting turn owns, as it is stored."""
    if turn.record is not None:
        return FORMAT, encode_record(turn.record).decode()
    return (FORMAT, None) if turn.input is None else write_parts(turn.input)


def _write_calls(tx: Transaction, export: Export) -> None:
    for call in export.calls:
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
        )


def _write_event(tx: Transaction, session: SessionId, event: ExportedEvent) -> None:
    events.add(
        tx,
        session,
        event.body,
        number=event.number,
        last=event.last,
        fence=event.fence,
        turn=event.turn,
        said=None if event.said is None else Said(event.said.window, event.said.low, event.said.high),
        at=event.at,
    )
