"""Sessions: found by address, named, filed, and closed."""

from collections.abc import Mapping, Sequence

import msgspec

from backstay.errors import CorruptRecord, InvalidPayload, SessionExpired, TooLarge
from backstay.model.address import Address
from backstay.model.codec import check_metadata, check_name, check_text, decode_names, encode_metadata, encode_names
from backstay.model.event import (
    AddressPointed,
    EventBody,
    SessionAnnotated,
    SessionArchived,
    SessionCreated,
    SessionEnded,
    SessionPinned,
    SessionRenamed,
    SessionTagged,
)
from backstay.model.event import SessionExpired as SessionExpiredEvent
from backstay.model.ids import SessionId, WindowId
from backstay.model.session import Filing, How, Resolved, Session, TitleBy, Ttl
from backstay.model.turn import Cancelled
from backstay.store.door import Door, find, leave
from backstay.store.engine import Overtaken, Transaction
from backstay.store.verbs import events, running, windows
from backstay.store.verbs.turns import TurnRow, find_row
from backstay.store.verbs.windows import Opening


def resolve(tx: Transaction, address: Address, owner: str, ttl: Ttl | None) -> Resolved:
    """The session behind the address, made if there is none that lives."""
    door, how, generation = enter(tx, address, owner, ttl)
    door.touch(tx.now)
    leave(tx, door)
    return Resolved(session=door.value(tx.now), how=how, generation=generation)


def enter(tx: Transaction, address: Address, owner: str, ttl: Ttl | None) -> tuple[Door, How, int]:
    """The door of the living session behind the address. The caller writes the door."""
    row = tx.one("address", owner=owner, key=bytes.fromhex(address.key))
    if row is None:
        return _create_at(tx, address, owner, ttl, before=None, generation=1), "created", 1
    session, generation, spelling = row
    if spelling != address.spelling:
        raise CorruptRecord(f"address {address.key}", f"is stored as {spelling!r}, not {address.spelling!r}")
    door = _living(tx, session, owner, ttl)
    if door is None:
        generation += 1
        return _create_at(tx, address, owner, ttl, before=session, generation=generation), "replaced", generation
    return door, "resumed", generation


def create(tx: Transaction, owner: str, ttl: Ttl | None, metadata: Mapping[str, str] | None = None) -> Session:
    """A session that no address leads to."""
    return _create(tx, owner, None, ttl, check_metadata(metadata or {}, tx.limits)).value(tx.now)


def touch(tx: Transaction, session: SessionId, owner: str) -> Session:
    """Count one mark of activity."""
    door = _enter_open(tx, session, owner)
    door.touch(tx.now)
    leave(tx, door)
    return door.value(tx.now)


def rename(tx: Transaction, session: SessionId, owner: str, title: str | None, by: TitleBy) -> Session:
    """Give the session a title; a generated one never replaces a person's."""
    if title is not None:
        title = check_text("the title", title, tx.limits.title_bytes).strip() or None
    if by not in ("person", "agent"):
        raise InvalidPayload(f"a title cannot be by {by!r}", hint="Use 'person' or 'agent'.")
    door = _enter_open(tx, session, owner)
    whose = by if title else None
    if (by == "agent" and door.title_by == "person") or (title, whose) == (door.title, door.title_by):
        return door.value(tx.now)
    door.title, door.title_by = title, whose
    tx.run("set_title", session=session, title=title, title_by=door.title_by)
    return _noticed(tx, door, SessionRenamed(title, by))


def pin(tx: Transaction, session: SessionId, owner: str, pinned: bool) -> Session:
    """Pin or unpin."""
    door = _enter_open(tx, session, owner)
    if bool(door.pinned) == _flag("pinned", pinned):
        return door.value(tx.now)
    door.pinned = int(pinned)
    tx.run("set_pinned", session=session, value=door.pinned)
    return _noticed(tx, door, SessionPinned(pinned))


def archive(tx: Transaction, session: SessionId, owner: str, archived: bool) -> Session:
    """Put away or bring back."""
    door = _enter_open(tx, session, owner)
    if bool(door.archived) == _flag("archived", archived):
        return door.value(tx.now)
    door.archived = int(archived)
    tx.run("set_archived", session=session, value=door.archived)
    return _noticed(tx, door, SessionArchived(archived))


def tag(tx: Transaction, session: SessionId, owner: str, add: Sequence[str], remove: Sequence[str]) -> Session:
    """Add and remove tags."""
    for name in (*add, *remove):
        check_name("a tag", name, tx.limits.tag_bytes)
    door = _enter_open(tx, session, owner)
    before = set(decode_names(f"tags of {session}", door.tags))
    after = (before | set(add)) - set(remove)
    if after == before:
        return door.value(tx.now)
    if len(after) > tx.limits.tags:
        raise TooLarge(f"{session} would have {len(after)} tags; at most {tx.limits.tags} are accepted")
    door.tags = encode_names(sorted(after))
    tx.run("set_tags", session=session, tags=door.tags)
    return _noticed(tx, door, SessionTagged(tuple(sorted(after - before)), tuple(sorted(before - after))))


def annotate(tx: Transaction, session: SessionId, owner: str, metadata: Mapping[str, str]) -> Session:
    """Attach other metadata than it has."""
    written = encode_metadata(check_metadata(metadata, tx.limits))
    door = _enter_open(tx, session, owner)
    if written == door.metadata:
        return door.value(tx.now)
    door.metadata = written
    tx.run("set_metadata", session=session, metadata=written)
    return _noticed(tx, door, SessionAnnotated(dict(metadata)))


def file(tx: Transaction, session: SessionId, owner: str, filing: Filing, expect_revision: int | None) -> Session:
    """Change title, pin, archive, tags and metadata in one transaction."""
    door = _enter_open(tx, session, owner)
    door.require_revision(expect_revision)
    filed = door.value(tx.now)
    if filing.title is not msgspec.UNSET:
        filed = rename(tx, session, owner, filing.title, "person")
    if filing.pinned is not msgspec.UNSET:
        filed = pin(tx, session, owner, filing.pinned)
    if filing.archived is not msgspec.UNSET:
        filed = archive(tx, session, owner, filing.archived)
    if filing.add_tags or filing.remove_tags:
        filed = tag(tx, session, owner, filing.add_tags, filing.remove_tags)
    if filing.metadata is not msgspec.UNSET:
        filed = annotate(tx, session, owner, filing.metadata)
    return filed


def point(tx: Transaction, address: Address, session: SessionId, owner: str) -> Session:
    """Lead an address to this session from now on."""
    door = _enter_open(tx, session, owner)
    row = tx.one("address", owner=owner, key=bytes.fromhex(address.key))
    if row is not None and row[0] == session:
        return door.value(tx.now)
    before, generation = (None, 0) if row is None else (row[0], row[1])
    _lead(tx, owner, address, session, before=before, generation=generation + 1)
    return _noticed(tx, door, AddressPointed(address.spelling))


def end(tx: Transaction, session: SessionId, owner: str, expect_revision: int | None = None) -> Session:
    """End the session for good; what runs and waits is cancelled."""
    door = find(tx, session, owner)
    running.reap(tx, door)
    door.require_revision(expect_revision)
    standing = door.standing(tx.now)
    if standing == "ended":
        return door.value(tx.now)
    if standing == "expired":
        raise SessionExpired(f"{session} has expired")
    _cancel_all(tx, door)
    _close(tx, door, "ended", SessionEnded())
    return door.value(tx.now)


def expire(tx: Transaction, door: Door) -> None:
    """Write down that the session's time has run out, so that no clock can bring it back."""
    _close(tx, door, "expired", SessionExpiredEvent())


def _enter_open(tx: Transaction, session: SessionId, owner: str) -> Door:
    """The door of a session that takes writes; a turn whose holder is gone is ended on the way."""
    door = find(tx, session, owner)
    # First: a dead holder's turn must not keep alive what would have expired without it.
    running.reap(tx, door)
    door.require_open(tx.now)
    return door


def _flag(what: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidPayload(f"{what} is {value!r}", hint="Pass True or False.")
    return value


def _create_at(
    tx: Transaction, address: Address, owner: str, ttl: Ttl | None, *, before: SessionId | None, generation: int
) -> Door:
    door = _create(tx, owner, address, ttl)
    _lead(tx, owner, address, door.id, before=before, generation=generation)
    return door


def _lead(
    tx: Transaction, owner: str, address: Address, session: SessionId, *, before: SessionId | None, generation: int
) -> None:
    """Lead an address to a session, unless it leads elsewhere by now than where it was seen to."""
    key = bytes.fromhex(address.key)
    if not tx.run(
        "put_address",
        owner=owner,
        key=key,
        spelling=address.spelling,
        session=session,
        generation=generation,
        before=before,
    ):
        raise Overtaken(f"{address.spelling} was led elsewhere meanwhile")


def _create(
    tx: Transaction, owner: str, address: Address | None, ttl: Ttl | None, metadata: Mapping[str, str] | None = None
) -> Door:
    session = tx.ids.session()
    family, place = (None, None) if address is None else (address.family, address.place)
    insert(tx, session, owner, window=tx.ids.window(), family=family, place=place, ttl=ttl, metadata=metadata)
    door = find(tx, session, owner)
    windows.open_first(tx, door.window, Opening(session, door.last_event + 1, None, "first"))
    events.tell(tx, door, SessionCreated())
    leave(tx, door)
    return door


def insert(
    tx: Transaction,
    session: SessionId,
    owner: str,
    *,
    window: WindowId,
    family: str | None,
    place: str | None,
    ttl: Ttl | None = None,
    source: SessionId | None = None,
    metadata: Mapping[str, str] | None = None,
    agent: str | None = None,
) -> None:
    """A new session's row; its window and first event are the caller's to write."""
    idle, absolute = _milliseconds(ttl)
    tx.run(
        "create_session",
        session=session,
        owner=owner,
        window=window,
        family=family,
        place=place,
        source=source,
        idle_ttl=idle,
        expires_by=None if absolute is None else tx.now + absolute,
        now=tx.now,
        metadata=encode_metadata(metadata or {}),
        agent=agent,
    )


def _living(tx: Transaction, session: SessionId, owner: str, ttl: Ttl | None) -> Door | None:
    """The session's door if it takes writes, also by the time to live that it is given now; else it is closed."""
    row = tx.one("door", session=session, owner=owner)
    if row is None:
        return None
    door = Door(*row)
    running.reap(tx, door)
    if ttl is not None and door.standing(tx.now) == "open":
        _set_ttl(tx, door, ttl)
    if door.standing(tx.now) == "open":
        return door
    if door.state == "open":
        expire(tx, door)
    return None


def _set_ttl(tx: Transaction, door: Door, ttl: Ttl) -> None:
    idle, absolute = _milliseconds(ttl)
    door.idle_ttl, door.expires_by = idle, None if absolute is None else door.created_at + absolute
    tx.run("set_ttl", session=door.id, idle_ttl=door.idle_ttl, expires_by=door.expires_by)


def _milliseconds(ttl: Ttl | None) -> tuple[int | None, int | None]:
    if ttl is None:
        return None, None
    if not isinstance(ttl, Ttl):
        raise InvalidPayload(f"a time to live is {ttl!r}", hint="Pass Ttl(idle=…, absolute=…).")
    return _positive("idle", ttl.idle), _positive("absolute", ttl.absolute)


def _positive(what: str, seconds: float | None) -> int | None:
    if seconds is None:
        return None
    if not isinstance(seconds, int | float) or not 0 < seconds < 1e11:
        raise InvalidPayload(f"the {what} time to live is {seconds} seconds", hint="Give a positive number, or None.")
    return max(1, round(seconds * 1000))


def _noticed(tx: Transaction, door: Door, body: EventBody) -> Session:
    """A change that people see but agents do not: revision and event, no context, no place in the list."""
    door.revision += 1
    events.tell(tx, door, body)
    leave(tx, door)
    return door.value(tx.now)


def _cancel_all(tx: Transaction, door: Door) -> None:
    if door.running is not None:
        door.fence += 1
        running.end(tx, door, find_row(tx, door.running, door.owner), Cancelled("the session was ended"))
    for row in tx.all("waiting_turns", session=door.id):
        running.end_waiting(tx, door, TurnRow(*row), Cancelled("the session was ended"))


def _close(tx: Transaction, door: Door, state: str, body: EventBody) -> None:
    door.revision += 1
    events.tell(tx, door, body)
    leave(tx, door)
    door.state, door.ended_at = state, tx.now
    tx.run("close_session", session=door.id, state=state, now=tx.now)
