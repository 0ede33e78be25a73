"""Changes of sessions: created, found by address, labelled, and closed."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from backstay.errors import CorruptRecord, InvalidPayload, SessionExpired, TooLarge
from backstay.model.addresses.address import Address
from backstay.model.codec import check_metadata, check_name, check_text, decode_names, encode_metadata, encode_names
from backstay.model.event import (
    AddressPointed,
    EventBody,
    SessionAnnotated,
    SessionArchived,
    SessionCreated,
    SessionEndedEvent,
    SessionExpiredEvent,
    SessionPinned,
    SessionRenamed,
    SessionTagged,
)
from backstay.model.ids import SessionId
from backstay.model.session import How, Resolved, SessionInfo, SessionPatch, TitleBy, Ttl
from backstay.model.turn import Cancelled
from backstay.store.engine import Transaction
from backstay.store.rows import Rows
from backstay.store.session_row import LockedRow, SessionScope, insert_session, lock_if_there, new_row
from backstay.store.verbs import owner_totals
from backstay.store.verbs.history import window_segments
from backstay.store.verbs.history.window_segments import Opening
from backstay.store.verbs.session_ttl import set_ttl
from backstay.store.verbs.turns import event_log, lifecycle
from backstay.store.verbs.turns.turn_row import WAITING_TURNS, find_row


class AddressRow(NamedTuple):
    """The session of an address, how often it was pointed, and its spelling."""

    session: SessionId
    generation: int
    spelling: str


class SessionAt(NamedTuple):
    """The locked session behind an address, how it was found, and the generation of the address."""

    scope: SessionScope
    how: How
    generation: int


ADDRESS = Rows("address", AddressRow)


def resolve(tx: Transaction, address: Address, owner: str, ttl: Ttl | None) -> Resolved:
    """Return the open session behind an address; it is created if there is none."""
    found = lock_at(tx, address, owner, ttl)
    with found.scope as session_row:
        # A crash may take back a mark that only moves the session up in the list. All else is synced.
        if found.how != "resumed" or session_row.idle_ttl is not None or found.scope.changed:
            tx.require_sync()
        if found.how != "resumed" or session_row.mark_due(tx.now):
            session_row.touch(tx.now)
        else:
            tx.commit_unchanged()
    return Resolved(session=session_row.value(tx.now), how=found.how, generation=found.generation)


def lock_at(tx: Transaction, address: Address, owner: str, ttl: Ttl | None) -> SessionAt:
    """Lock the open session behind an address; it is created if there is none."""
    found = ADDRESS.one(tx, owner=owner, key=bytes.fromhex(address.key))
    if found is None:
        tx.require_sync()
        return SessionAt(_create_at(tx, address, owner, ttl, before=None, generation=1), "created", 1)
    if found.spelling != address.spelling:
        raise CorruptRecord(f"address {address.key}", f"is stored as {found.spelling!r}, not {address.spelling!r}")
    scope = _lock_open_or_close(tx, found.session, owner, ttl)
    if scope is not None:
        return SessionAt(scope, "resumed", found.generation)
    generation = found.generation + 1
    scope = _create_at(tx, address, owner, ttl, before=found.session, generation=generation)
    return SessionAt(scope, "replaced", generation)


def begin(tx: Transaction, owner: str, ttl: Ttl | None) -> SessionScope:
    """Create a session without an address for an input that follows in this transaction; it stays locked."""
    return _create(tx, owner, None, ttl)


def create(tx: Transaction, owner: str, ttl: Ttl | None, metadata: Mapping[str, str] | None = None) -> SessionInfo:
    """Create a session without an address."""
    if metadata:
        owner_totals.require_room(tx, owner)
    with _create(tx, owner, None, ttl, check_metadata(metadata or {}, tx.limits)) as session_row:
        pass
    return session_row.value(tx.now)


def rename(tx: Transaction, session: SessionId, owner: str, title: str | None, by: TitleBy) -> SessionInfo:
    """Set the title. A generated title never replaces one that a person set."""
    title = _checked_title(tx, title)
    if by not in ("person", "agent"):
        raise InvalidPayload(f"a title cannot be by {by!r}", hint="Use 'person' or 'agent'.")
    with lock_open_session(tx, session, owner) as session_row:
        _set_title(tx, session_row, title, by)
    return session_row.value(tx.now)


def pin(tx: Transaction, session: SessionId, owner: str, pinned: bool) -> SessionInfo:
    """Pin or unpin the session."""
    with lock_open_session(tx, session, owner) as session_row:
        _set_pinned(tx, session_row, pinned)
    return session_row.value(tx.now)


def archive(tx: Transaction, session: SessionId, owner: str, archived: bool) -> SessionInfo:
    """Archive or unarchive the session."""
    with lock_open_session(tx, session, owner) as session_row:
        _set_archived(tx, session_row, archived)
    return session_row.value(tx.now)


def tag(tx: Transaction, session: SessionId, owner: str, add: Sequence[str], remove: Sequence[str]) -> SessionInfo:
    """Add and remove tags."""
    _check_tags(tx, add, remove)
    with lock_open_session(tx, session, owner) as session_row:
        _set_tags(tx, session_row, add, remove)
    return session_row.value(tx.now)


def annotate(tx: Transaction, session: SessionId, owner: str, metadata: Mapping[str, str]) -> SessionInfo:
    """Replace the metadata."""
    check_metadata(metadata, tx.limits)
    with lock_open_session(tx, session, owner) as session_row:
        _set_metadata(tx, session_row, metadata)
    return session_row.value(tx.now)


def update(
    tx: Transaction, session: SessionId, owner: str, patch: SessionPatch, expect_revision: int | None
) -> SessionInfo:
    """Change title, pin, archive, tags and metadata in one transaction."""
    with lock_open_session(tx, session, owner) as session_row:
        session_row.require_revision(expect_revision)
        if patch.title is not msgspec.UNSET:
            _set_title(tx, session_row, _checked_title(tx, patch.title), "person")
        if patch.pinned is not msgspec.UNSET:
            _set_pinned(tx, session_row, patch.pinned)
        if patch.archived is not msgspec.UNSET:
            _set_archived(tx, session_row, patch.archived)
        if patch.add_tags or patch.remove_tags:
            _check_tags(tx, patch.add_tags, patch.remove_tags)
            _set_tags(tx, session_row, patch.add_tags, patch.remove_tags)
        if patch.metadata is not msgspec.UNSET:
            _set_metadata(tx, session_row, patch.metadata)
    return session_row.value(tx.now)


def point(tx: Transaction, address: Address, session: SessionId, owner: str) -> SessionInfo:
    """Point an address to this session."""
    with lock_open_session(tx, session, owner) as session_row:
        found = ADDRESS.one(tx, owner=owner, key=bytes.fromhex(address.key))
        if found is None or found.session != session:
            before, generation = (None, 0) if found is None else (found.session, found.generation)
            _point_row(tx, owner, address, session, before=before, generation=generation + 1)
            _append_change(tx, session_row, AddressPointed(address.spelling))
    return session_row.value(tx.now)


def end(tx: Transaction, session: SessionId, owner: str, expect_revision: int | None = None) -> SessionInfo:
    """End the session permanently. Running and waiting turns are cancelled. Raises `SessionExpired`."""
    with lifecycle.lock_and_reap(tx, session, owner) as session_row:
        session_row.require_revision(expect_revision)
        state_at = session_row.state_at(tx.now)
        if state_at == "expired":
            raise SessionExpired(f"{session} has expired")
        if state_at == "open":
            _cancel_all(tx, session_row)
            _close(tx, session_row, "ended", SessionEndedEvent())
    return session_row.value(tx.now)


def expire(tx: Transaction, session_row: LockedRow) -> None:
    """Store that the session has expired, so that no clock can bring it back."""
    _close(tx, session_row, "expired", SessionExpiredEvent())


def lock_open_session(tx: Transaction, session: SessionId, owner: str) -> SessionScope:
    """Lock a session that accepts writes. Raises `NotFound`, `SessionEnded` or `SessionExpired`."""
    # Reaping comes first: the turn of a dead holder must not keep a session open that has expired without it.
    scope = lifecycle.lock_and_reap(tx, session, owner)
    scope.row.require_open(tx.now)
    return scope


def _checked_title(tx: Transaction, title: str | None) -> str | None:
    return None if title is None else check_text("the title", title, tx.limits.title_bytes).strip() or None


def _set_title(tx: Transaction, session_row: LockedRow, title: str | None, by: TitleBy) -> None:
    title_by = by if title else None
    if by == "agent" and session_row.title_by == "person":
        return
    if (title, title_by) != (session_row.title, session_row.title_by):
        session_row.title, session_row.title_by = title, title_by
        _append_change(tx, session_row, SessionRenamed(title, by))


def _set_pinned(tx: Transaction, session_row: LockedRow, pinned: bool) -> None:
    if bool(session_row.pinned) != _flag("pinned", pinned):
        session_row.pinned = int(pinned)
        _append_change(tx, session_row, SessionPinned(pinned))


def _set_archived(tx: Transaction, session_row: LockedRow, archived: bool) -> None:
    if bool(session_row.archived) != _flag("archived", archived):
        session_row.archived = int(archived)
        _append_change(tx, session_row, SessionArchived(archived))


def _check_tags(tx: Transaction, add: Sequence[str], remove: Sequence[str]) -> None:
    for name in (*add, *remove):
        check_name("a tag", name, tx.limits.tag_bytes)


def _set_tags(tx: Transaction, session_row: LockedRow, add: Sequence[str], remove: Sequence[str]) -> None:
    before = set(decode_names(f"tags of {session_row.id}", session_row.tags))
    after = (before | set(add)) - set(remove)
    if after == before:
        return
    if len(after) > tx.limits.tags:
        raise TooLarge(f"{session_row.id} would have {len(after)} tags; at most {tx.limits.tags} are accepted")
    session_row.tags = encode_names(sorted(after))
    _append_change(tx, session_row, SessionTagged(tuple(sorted(after - before)), tuple(sorted(before - after))))


def _set_metadata(tx: Transaction, session_row: LockedRow, metadata: Mapping[str, str]) -> None:
    written = encode_metadata(check_metadata(metadata, tx.limits))
    if written != session_row.metadata:
        session_row.metadata = written
        _append_change(tx, session_row, SessionAnnotated(dict(metadata)))


def _flag(what: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidPayload(f"{what} is {value!r}", hint="Pass True or False.")
    return value


def _create_at(
    tx: Transaction, address: Address, owner: str, ttl: Ttl | None, *, before: SessionId | None, generation: int
) -> SessionScope:
    scope = _create(tx, owner, address, ttl)
    _point_row(tx, owner, address, scope.row.id, before=before, generation=generation)
    return scope


def _point_row(
    tx: Transaction, owner: str, address: Address, session: SessionId, *, before: SessionId | None, generation: int
) -> None:
    """Point an address to a session. The transaction is run again if another one pointed it elsewhere since."""
    key = bytes.fromhex(address.key)
    tx.run_guarded(
        "set_address",
        owner=owner,
        key=key,
        spelling=address.spelling,
        session=session,
        generation=generation,
        before=before,
    )


def _create(
    tx: Transaction, owner: str, address: Address | None, ttl: Ttl | None, metadata: Mapping[str, str] | None = None
) -> SessionScope:
    owner_totals.require_session(tx, owner)
    row = new_row(tx, owner)
    if address is not None:
        row.family, row.place = address.family, address.place
    if ttl is not None:
        set_ttl(row, ttl)
    if metadata:
        row.metadata = encode_metadata(metadata)
    row.last_event = 1
    scope = insert_session(tx, row)
    window_segments.open_first(tx, row.window, Opening(row.id, row.last_event, None, "first"))
    event_log.append_first(tx, row, SessionCreated())
    return scope


def _lock_open_or_close(tx: Transaction, session: SessionId, owner: str, ttl: Ttl | None) -> SessionScope | None:
    """Lock the session if it accepts writes, also under its new time to live. Otherwise store that it has expired."""
    scope = lock_if_there(tx, session, owner)
    if scope is None:
        return None
    lifecycle.reap(tx, scope.row)
    if ttl is not None and scope.row.state_at(tx.now) == "open":
        set_ttl(scope.row, ttl)
    if scope.row.state_at(tx.now) == "open":
        return scope
    with scope as session_row:
        if session_row.state == "open":
            expire(tx, session_row)
    return None


def _append_change(tx: Transaction, session_row: LockedRow, body: EventBody) -> None:
    """Append a change that people see and agents do not: the revision grows, the context and the list position stay."""
    if not (isinstance(body, SessionRenamed) and body.by == "agent"):
        owner_totals.require_text(tx, session_row, event_log.text_size(body))
    session_row.revision += 1
    event_log.append_event(tx, session_row, body)


def _cancel_all(tx: Transaction, session_row: LockedRow) -> None:
    outcome = Cancelled("the session was ended")
    if session_row.running is not None:
        # The fence grows: the holder of the running turn fails at its next write.
        session_row.fence += 1
        lifecycle.end(tx, session_row, find_row(tx, session_row.running, session_row.owner), outcome)
    for row in WAITING_TURNS.all(tx, session=session_row.id):
        lifecycle.end_waiting(tx, session_row, row, outcome)


def _close(tx: Transaction, session_row: LockedRow, state: str, body: EventBody) -> None:
    session_row.revision += 1
    event_log.append_event(tx, session_row, body)
    session_row.state, session_row.ended_at = state, tx.now
