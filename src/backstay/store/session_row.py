"""The session row: the one row that guards a session.

Every write to a session locks this row first and writes it back last, in one transaction. A verb changes it inside of a
`with` block; the end of the block writes the row, once, and only if the block changed it:

    with lock_session(tx, session, owner) as session_row:
        session_row.revision += 1
"""

from copy import copy
from operator import attrgetter
from types import TracebackType
from typing import TypeVar

import msgspec

from backstay.errors import (
    LeaseLost,
    NotFound,
    RevisionMismatch,
    SessionBusy,
    SessionEnded,
    SessionExpired,
)
from backstay.model.codec import decode_metadata, decode_names
from backstay.model.ids import SessionId, TurnId, WindowId, WorkerId
from backstay.model.lease import Lease
from backstay.model.session import SessionInfo, SessionState, TitleBy
from backstay.model.turn import Inbox, OpenTurn
from backstay.store.engine import Holding, Overtaken, Transaction
from backstay.store.rows import Rows

# A session moves up in the list at most this often: people need no finer order, and each move rewrites an index.
LIST_GRAIN_MS = 1_000


class SessionRow(msgspec.Struct):
    """The row of a session, as it was read. Changes to it are not stored; see `LockedRow`."""

    id: SessionId
    owner: str
    state: str
    revision: int
    context: int
    fence: int
    last_event: int
    held_event: int
    window: WindowId
    start: int
    length: int
    holder: WorkerId | None
    lease_until: int | None
    lease_boot: str | None
    lease_ms: int | None
    running: TurnId | None
    cancelling: int
    waiting: int
    steering: int
    queued: int
    turns: int
    activity: int
    touched_at: int
    preview: str | None
    title: str | None
    title_by: TitleBy | None
    pinned: int
    archived: int
    tags: str
    family: str | None
    place: str | None
    source: SessionId | None
    idle_ttl: int | None
    expires_by: int | None
    created_at: int
    active_at: int
    ended_at: int | None
    metadata: str
    agent: str | None
    held: int
    text_bytes: int

    @property
    def queue(self) -> int:
        """The number of waiting turns that are not held."""
        return self.waiting - self.held

    def lease(self) -> Lease | None:
        """The lease of the running turn's holder."""
        if self.holder is None or self.lease_until is None or self.lease_boot is None:
            return None
        return Lease(
            session=self.id,
            holder=self.holder,
            fence=self.fence,
            until=self.lease_until,
            boot_id=self.lease_boot,
            lasts=self.lease_ms or 0,
        )

    def inbox(self) -> Inbox:
        """The inbox of the running turn."""
        return Inbox(cancel=bool(self.cancelling), steering=self.steering, waiting=self.queue)

    def expires_at(self) -> int | None:
        """When an idle session expires: the earlier of its two limits, or None."""
        if self.idle_ttl is None:
            return self.expires_by
        idle = self.touched_at + self.idle_ttl
        return idle if self.expires_by is None else min(idle, self.expires_by)

    def standing(self, now: int) -> SessionState:
        """Open, ended or expired. Running and waiting turns postpone expiry."""
        if self.state == "ended":
            return "ended"
        if self.idle_ttl is None and self.expires_by is None:
            return "expired" if self.state == "expired" else "open"
        limit = self.expires_at()
        lapsed = limit is not None and limit <= now and self.running is None and self.waiting == 0
        return "expired" if lapsed or self.state == "expired" else "open"

    def _expiry_shown(self, now: int) -> int | None:
        """The earliest expiry: not before now while a running or waiting turn postpones it."""
        limit = self.expires_at()
        return now if limit is not None and limit < now and self.standing(now) == "open" else limit

    def value(self, now: int) -> SessionInfo:
        """The session as a caller sees it."""
        return SessionInfo(
            id=self.id,
            owner=self.owner,
            state=self.standing(now),
            revision=self.revision,
            context=self.context,
            fence=self.fence,
            last_event=self.last_event,
            window=self.window,
            length=self.length,
            title=self.title,
            title_by=self.title_by,
            preview=self.preview,
            pinned=bool(self.pinned),
            archived=bool(self.archived),
            tags=decode_names(f"tags of {self.id}", self.tags) if self.tags != "[]" else (),
            family=self.family,
            place=self.place,
            source=self.source,
            running=self.running,
            holder=self.holder,
            waiting=self.waiting,
            turns=self.turns,
            activity=self.activity,
            created_at=self.created_at,
            active_at=self.active_at,
            expires_at=self._expiry_shown(now),
            ended_at=self.ended_at,
            metadata=decode_metadata(f"metadata of {self.id}", self.metadata) if self.metadata != "{}" else {},
            agent=self.agent,
            held=self.held,
        )

    # --- checks -----------------------------------------------------------------------------------------------------

    def require_open(self, now: int) -> None:
        """Raise `SessionEnded` or `SessionExpired` unless the session accepts writes."""
        standing = self.standing(now)
        if standing == "ended":
            raise SessionEnded(f"{self.id} was ended")
        if standing == "expired":
            raise SessionExpired(f"{self.id} has expired")

    def require_revision(self, expected: int | None) -> None:
        """Raise `RevisionMismatch` if the caller has seen another revision."""
        if expected is not None and expected != self.revision:
            raise RevisionMismatch(
                f"{self.id} is at revision {self.revision}, not {expected}", expected=expected, actual=self.revision
            )

    def require_idle(self, verb: str) -> None:
        """Raise `SessionBusy` while a turn runs or waits: the verb would change the window that it reads."""
        if self.running is not None:
            raise SessionBusy(
                f"{self.id} cannot {verb} while {self.running} runs",
                hint="Wait for the turn to end, or cancel it first. Forking is always possible.",
            )
        if self.waiting:
            raise SessionBusy(
                f"{self.id} cannot {verb} while {self.waiting} turns wait", hint="Withdraw the waiting turns first."
            )

    def require_free(self) -> None:
        """Raise `SessionBusy` while a turn runs."""
        if self.running is not None:
            until = "" if self.holder is None else f" (held by {self.holder})"
            raise SessionBusy(f"{self.running} is running in {self.id}{until}")


class LockedRow(SessionRow):
    """The row of a session that this transaction writes. Only a `SessionScope` makes one, and writes its changes."""

    def touch(self, now: int) -> None:
        """Count one mark of activity."""
        self.activity += 1
        self.touched_at = max(self.touched_at, now)

    def release_lease(self) -> None:
        """Leave the session without a holder and without a running turn."""
        self.holder = self.lease_until = self.lease_boot = self.lease_ms = self.running = None
        self.cancelling = 0


_FOUND = Rows("session_row", SessionRow)
_LOCKED = Rows("session_row", LockedRow)

# A checkpoint changes none of these, and then writes a statement without them.
_beyond_holder = attrgetter(
    "window",
    "start",
    "length",
    "holder",
    "lease_ms",
    "running",
    "cancelling",
    "queued",
    "turns",
    "activity",
    "preview",
    "held",
    "text_bytes",
)
# Columns that change seldom and are in indexes. Each group has its own statement, so other writes do not touch them.
_SELDOM_CHANGED = {
    "set_labels": ("title", "title_by", "pinned", "archived", "tags", "metadata"),
    "set_agent": ("agent",),
    "set_ttl": ("idle_ttl", "expires_by"),
    "close_session": ("state", "ended_at"),
}
_seldom_changed = attrgetter(*(name for names in _SELDOM_CHANGED.values() for name in names))


def note_holder(tx: Transaction, session_row: SessionRow) -> SessionRow:
    """Record the holder of a session whose row was read: the store then checks whether it is gone."""
    lease = session_row.lease()
    if lease is not None:
        tx.met.append(Holding(session_row.owner, lease))
    return session_row


def find(tx: Transaction, session: SessionId, owner: str) -> SessionRow:
    """Read the session row. Raises `NotFound`, also for the session of another owner."""
    found = _FOUND.one(tx, session=session, owner=owner)
    if found is None:
        raise NotFound(f"no session {session} of {owner!r}")
    return note_holder(tx, found)


def find_if_there(tx: Transaction, session: SessionId, owner: str) -> SessionRow | None:
    """Read the session row, or return None."""
    found = _FOUND.one(tx, session=session, owner=owner)
    return None if found is None else note_holder(tx, found)


def find_held(tx: Transaction, turn: OpenTurn) -> SessionRow:
    """Read the session row for the holder of a running turn. Raises `LeaseLost` if the lease is not in force."""
    return _require_held(_FOUND.one(tx, session=turn.session, owner=turn.owner), turn)


class SessionScope:
    """A locked session row. Leaving the `with` block writes the row, unless the block raised or changed nothing.

    Raises:
        Overtaken: another transaction wrote the session since the row was read. The engine runs the verb again.
    """

    __slots__ = ("_always", "_before", "_tx", "row")

    def __init__(self, tx: Transaction, row: LockedRow, *, always: bool = False) -> None:
        self._tx, self.row, self._before, self._always = tx, row, copy(row), always

    def __enter__(self) -> LockedRow:
        return self.row

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and (self._always or self.row != self._before):
            _write(self._tx, self.row, self._before)


def lock_session(tx: Transaction, session: SessionId, owner: str) -> SessionScope:
    """Lock a session row. Raises `NotFound`, also for the session of another owner."""
    scope = lock_if_there(tx, session, owner)
    if scope is None:
        raise NotFound(f"no session {session} of {owner!r}")
    return scope


def lock_if_there(tx: Transaction, session: SessionId, owner: str) -> SessionScope | None:
    """Lock a session row, or return None."""
    row = _LOCKED.one(tx, session=session, owner=owner)
    return None if row is None else SessionScope(tx, row)


def lock_held(tx: Transaction, turn: OpenTurn) -> SessionScope:
    """Lock the session row for the holder of a running turn. Raises `LeaseLost` if the lease is not in force."""
    return SessionScope(tx, _require_held(_LOCKED.one(tx, session=turn.session, owner=turn.owner), turn))


def renew_held(tx: Transaction, turn: OpenTurn) -> SessionScope:
    """Lock the session row like `lock_held`, and renew the lease.

    The row is written even if no column changes, as it may within one millisecond: the commit of this write is what
    makes the unsynced checkpoints before it durable.
    """
    row = _require_held(_LOCKED.one(tx, session=turn.session, owner=turn.owner), turn)
    scope = SessionScope(tx, row, always=True)
    row.lease_until, row.lease_boot = tx.lease()
    return scope


R = TypeVar("R", bound=SessionRow)


def _require_held(row: R | None, turn: OpenTurn) -> R:
    if row is None:
        raise LeaseLost(f"{turn.session} was deleted while {turn.id} ran")
    if row.running != turn.id or row.holder != turn.holder or row.fence != turn.fence:
        raise LeaseLost(f"{turn.holder} no longer holds {turn.session}: fence {turn.fence} is behind {row.fence}")
    return row


def _write(tx: Transaction, row: LockedRow, before: LockedRow) -> None:
    """Write a changed row, in as few columns as the change needs."""
    if _beyond_holder(row) == _beyond_holder(before):
        written = _write_holder_columns(tx, row, before)
    else:
        written = _write_row(tx, row, before)
    # The condition repeats what was read. The lock makes it true already; without one, as after a statement that forgot
    # to take it, another transaction's write would be overwritten here.
    if not written:
        raise Overtaken(f"{row.id} was written since event {before.last_event}, fence {before.fence}")
    if _seldom_changed(row) != _seldom_changed(before):
        for statement, names in _SELDOM_CHANGED.items():
            changed = {name: getattr(row, name) for name in names}
            if any(value != getattr(before, name) for name, value in changed.items()):
                tx.run(statement, session=row.id, **changed)
    if row.touched_at - row.active_at >= LIST_GRAIN_MS:
        row.active_at = row.touched_at
        tx.run("move_up", session=row.id, active_at=row.active_at)


def _write_holder_columns(tx: Transaction, row: LockedRow, before: LockedRow) -> int:
    return tx.run(
        "write_holder_columns",
        session=row.id,
        found_fence=before.fence,
        found_event=before.last_event,
        revision=row.revision,
        context=row.context,
        fence=row.fence,
        last_event=row.last_event,
        held_event=row.held_event,
        lease_until=row.lease_until,
        lease_boot=row.lease_boot,
        waiting=row.waiting,
        steering=row.steering,
        touched_at=row.touched_at,
    )


def _write_row(tx: Transaction, row: LockedRow, before: LockedRow) -> int:
    return tx.run(
        "write_session_row",
        session=row.id,
        found_fence=before.fence,
        found_event=before.last_event,
        revision=row.revision,
        context=row.context,
        fence=row.fence,
        last_event=row.last_event,
        held_event=row.held_event,
        window=row.window,
        start=row.start,
        length=row.length,
        holder=row.holder,
        lease_until=row.lease_until,
        lease_boot=row.lease_boot,
        lease_ms=row.lease_ms,
        running=row.running,
        cancelling=row.cancelling,
        waiting=row.waiting,
        steering=row.steering,
        queued=row.queued,
        turns=row.turns,
        activity=row.activity,
        touched_at=row.touched_at,
        preview=row.preview,
        held=row.held,
        text_bytes=row.text_bytes,
    )
