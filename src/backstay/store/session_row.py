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
from backstay.model.session import SessionInfo, SessionState, TitleBy
from backstay.model.turn import Inbox, OpenTurn
from backstay.store.engine import Lease, SeenLease, Transaction
from backstay.store.rows import Rows

# A session moves up in the list at most this often: people need no finer order, and each move rewrites an index.
LIST_GRAIN_MS = 1_000
# Text is counted in blocks, so that most messages change no total. The migrations count in the same way.
BLOCK = 16 << 10
# Sessions of one owner share this many rows of totals: writers of different sessions seldom wait for each other.
SHARDS = 16


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

    def state_at(self, now: int) -> SessionState:
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
        return now if limit is not None and limit < now and self.state_at(now) == "open" else limit

    def value(self, now: int) -> SessionInfo:
        """The session as a caller sees it."""
        limited = self.idle_ttl is not None or self.expires_by is not None
        # By position: a call with thirty keywords takes five times as long, and a list makes many of these.
        return SessionInfo(
            self.id,
            self.owner,
            self.state_at(now),
            self.revision,
            self.context,
            self.fence,
            self.last_event,
            self.window,
            self.length,
            self.title,
            self.title_by,
            self.preview,
            self.pinned == 1,
            self.archived == 1,
            decode_names(f"tags of {self.id}", self.tags) if self.tags != "[]" else (),
            self.family,
            self.place,
            self.source,
            self.running,
            self.holder,
            self.waiting,
            self.turns,
            self.activity,
            self.created_at,
            self.active_at,
            self._expiry_shown(now) if limited else None,
            self.ended_at,
            decode_metadata(f"metadata of {self.id}", self.metadata) if self.metadata != "{}" else {},
            self.agent,
            self.held,
        )

    # --- checks -----------------------------------------------------------------------------------------------------

    def require_open(self, now: int) -> None:
        """Raise `SessionEnded` or `SessionExpired` unless the session accepts writes."""
        state = self.state_at(now)
        if state == "ended":
            raise SessionEnded(f"{self.id} was ended")
        if state == "expired":
            raise SessionExpired(f"{self.id} has expired")

    def mark_due(self, now: int) -> bool:
        """Whether a lookup must be stored: it moves the session up in the list, or postpones its expiry."""
        return now - self.touched_at >= (LIST_GRAIN_MS if self.idle_ttl is None else 1)

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

# The statements that write a row, those with the fewest columns first. Unwritten columns need no check and no index.
_STATEMENTS = {
    "write_holder_columns": (
        "revision",
        "context",
        "fence",
        "last_event",
        "held_event",
        "lease_until",
        "lease_boot",
        "waiting",
        "steering",
        "touched_at",
    ),
    "write_append_columns": (
        "revision",
        "context",
        "last_event",
        "length",
        "turns",
        "activity",
        "touched_at",
        "preview",
        "text_bytes",
    ),
}
_WRITTEN = (
    *dict.fromkeys(name for names in _STATEMENTS.values() for name in names),
    "window",
    "start",
    "holder",
    "lease_ms",
    "running",
    "cancelling",
    "queued",
    "held",
)
_beyond = {
    statement: attrgetter(*(name for name in _WRITTEN if name not in names)) for statement, names in _STATEMENTS.items()
}
# Columns that change seldom and are in indexes. Each group has its own statement, so other writes do not touch them.
_SELDOM_CHANGED = {
    "set_labels": ("title", "title_by", "pinned", "archived", "tags", "metadata"),
    "set_agent": ("agent",),
    "set_ttl": ("idle_ttl", "expires_by"),
    "close_session": ("state", "ended_at"),
}
_seldom_changed = attrgetter(*(name for names in _SELDOM_CHANGED.values() for name in names))


def note_holder(tx: Transaction, session_row: SessionRow) -> SessionRow:
    """Record the holder of a session whose row was read: the store then checks whether it is dead."""
    if session_row.holder is not None and (lease := session_row.lease()) is not None:
        tx.seen_leases.append(SeenLease(session_row.owner, lease))
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

    It also counts a new session, and the new text, in the totals of the owner: once, after the row is locked.

    Raises:
        Overtaken: Another transaction wrote the session since the row was read. The engine runs the verb again.
    """

    __slots__ = ("_always", "_before", "_new", "_tx", "row")

    def __init__(self, tx: Transaction, row: LockedRow, *, always: bool = False, new: bool = False) -> None:
        self._tx, self.row, self._before, self._always, self._new = tx, row, copy(row), always, new

    @property
    def changed(self) -> bool:
        """Whether the row differs from the stored one."""
        return self.row != self._before

    def __enter__(self) -> LockedRow:
        return self.row

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            return
        if self._always or self.changed:
            _write(self._tx, self.row, self._before)
        blocks = blocks_of(self.row.text_bytes) - blocks_of(self._before.text_bytes)
        if blocks or self._new:
            add_to_totals(self._tx, self.row.owner, self.row.id, sessions=int(self._new), blocks=blocks)


def insert_session(tx: Transaction, row: LockedRow) -> SessionScope:
    """Insert the row of a new session, which is locked then. The caller adds its window and its first event."""
    tx.run(
        "create_session",
        session=row.id,
        owner=row.owner,
        revision=row.revision,
        context=row.context,
        last_event=row.last_event,
        window=row.window,
        start=row.start,
        length=row.length,
        preview=row.preview,
        title=row.title,
        title_by=row.title_by,
        family=row.family,
        place=row.place,
        source=row.source,
        idle_ttl=row.idle_ttl,
        expires_by=row.expires_by,
        now=row.created_at,
        metadata=row.metadata,
        agent=row.agent,
    )
    return SessionScope(tx, row, new=True)


def new_row(tx: Transaction, owner: str) -> LockedRow:
    """The row of a new session, as `insert_session` stores it: open, with an empty window and no event."""
    now = tx.now
    return LockedRow(
        id=tx.ids.session(),
        owner=owner,
        state="open",
        revision=1,
        context=0,
        fence=0,
        last_event=0,
        held_event=0,
        window=tx.ids.window(),
        start=0,
        length=0,
        holder=None,
        lease_until=None,
        lease_boot=None,
        lease_ms=None,
        running=None,
        cancelling=0,
        waiting=0,
        steering=0,
        queued=0,
        turns=0,
        activity=0,
        touched_at=now,
        preview=None,
        title=None,
        title_by=None,
        pinned=0,
        archived=0,
        tags="[]",
        family=None,
        place=None,
        source=None,
        idle_ttl=None,
        expires_by=None,
        created_at=now,
        active_at=now,
        ended_at=None,
        metadata="{}",
        agent=None,
        held=0,
        text_bytes=0,
    )


def add_to_totals(tx: Transaction, owner: str, session: SessionId, *, sessions: int, blocks: int) -> None:
    """Change the totals of an owner on account of a session."""
    tx.run("add_to_totals", owner=owner, shard=ord(session[-1]) % SHARDS, sessions=sessions, blocks=blocks)


def blocks_of(size: int) -> int:
    """The number of blocks that a text with this number of bytes counts as."""
    return -(-size // BLOCK)


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
    statement = next((name for name, others in _beyond.items() if others(row) == others(before)), "write_session_row")
    columns = {name: getattr(row, name) for name in _STATEMENTS.get(statement, _WRITTEN)}
    # The condition repeats what was read. The lock makes it true already; without one, as after a statement that forgot
    # to take it, another transaction's write would be overwritten here.
    tx.run_guarded(statement, session=row.id, found_fence=before.fence, found_event=before.last_event, **columns)
    if _seldom_changed(row) != _seldom_changed(before):
        for statement, names in _SELDOM_CHANGED.items():
            changed = {name: getattr(row, name) for name in names}
            if any(value != getattr(before, name) for name, value in changed.items()):
                tx.run(statement, session=row.id, **changed)
    if row.touched_at - row.active_at >= LIST_GRAIN_MS:
        row.active_at = row.touched_at
        tx.run("move_up", session=row.id, active_at=row.active_at)
