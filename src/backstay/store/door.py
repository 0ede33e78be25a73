"""The door: a session's row, which every write to the session passes first and updates last."""

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
from backstay.model.session import Session, SessionState, TitleBy
from backstay.model.turn import Mail, OpenTurn
from backstay.store.engine import Transaction

# Activity moves a session up the list at most this often; what a person sees as "newest" needs no finer grain.
LIST_GRAIN_MS = 1_000


class Door(msgspec.Struct):
    """A session's row while a verb works on it; the fields stand in the order of the columns."""

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

    def lease(self) -> Lease | None:
        """The lease of the running turn's holder."""
        if self.holder is None or self.lease_until is None or self.lease_boot is None:
            return None
        return Lease(
            session=self.id, holder=self.holder, fence=self.fence, until=self.lease_until, boot_id=self.lease_boot
        )

    def mail(self) -> Mail:
        return Mail(cancel=bool(self.cancelling), steering=self.steering, waiting=self.waiting)

    def expires_at(self) -> int | None:
        """When the session's time runs out if nothing happens; the earlier of its two limits."""
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

    def value(self, now: int) -> Session:
        """The session as a caller sees it."""
        return Session(
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
            expires_at=self.expires_at(),
            ended_at=self.ended_at,
            metadata=decode_metadata(f"metadata of {self.id}", self.metadata) if self.metadata != "{}" else {},
            agent=self.agent,
        )

    # --- what verbs do to it ----------------------------------------------------------------------------------------

    def require_open(self, now: int) -> None:
        """Raise unless the session takes writes."""
        standing = self.standing(now)
        if standing == "ended":
            raise SessionEnded(f"{self.id} was ended")
        if standing == "expired":
            raise SessionExpired(f"{self.id} has expired")

    def require_revision(self, expected: int | None) -> None:
        """Raise if the caller looked at another revision."""
        if expected is not None and expected != self.revision:
            raise RevisionMismatch(
                f"{self.id} is at revision {self.revision}, not {expected}", expected=expected, actual=self.revision
            )

    def require_idle(self, verb: str) -> None:
        """Raise while a turn runs or waits: the verb would pull the ground from under it."""
        if self.running is not None:
            raise SessionBusy(
                f"{self.id} cannot {verb} while {self.running} runs",
                hint="Wait for the turn to end, or cancel it first. Forking is always possible.",
            )
        if self.waiting:
            raise SessionBusy(
                f"{self.id} cannot {verb} while {self.waiting} turns wait", hint="Withdraw the waiting turns first."
            )

    def touch(self, now: int) -> None:
        """Count one mark of activity."""
        self.activity += 1
        self.touched_at = max(self.touched_at, now)

    def free(self) -> None:
        """Nobody holds the session any more."""
        self.holder = self.lease_until = self.lease_boot = self.running = None
        self.cancelling = 0


def find(tx: Transaction, session: SessionId, owner: str) -> Door:
    """The session's row; another owner's is not found."""
    row = tx.one("door", session=session, owner=owner)
    if row is None:
        raise NotFound(f"no session {session} of {owner!r}")
    return Door(*row)


def find_held(tx: Transaction, turn: OpenTurn) -> Door:
    """The session's row, if this holder's lease on this turn is still the one in force."""
    row = tx.one("door", session=turn.session, owner=turn.owner)
    if row is None:
        raise LeaseLost(f"{turn.session} was deleted while {turn.id} ran")
    door = Door(*row)
    if door.running != turn.id or door.holder != turn.holder or door.fence != turn.fence:
        raise LeaseLost(f"{turn.holder} no longer holds {turn.session}: fence {turn.fence} is behind {door.fence}")
    return door


def keep(tx: Transaction, door: Door) -> None:
    """Write back what a sign of life of the holder can change; nobody starts or ends here."""
    tx.run(
        "keep_door",
        session=door.id,
        revision=door.revision,
        context=door.context,
        fence=door.fence,
        last_event=door.last_event,
        held_event=door.held_event,
        lease_until=door.lease_until,
        lease_boot=door.lease_boot,
        waiting=door.waiting,
        steering=door.steering,
    )


def leave(tx: Transaction, door: Door) -> None:
    """Write the row back. What lists are ordered by moves seldom, so that most writes leave that index alone."""
    tx.run(
        "leave_door",
        session=door.id,
        revision=door.revision,
        context=door.context,
        fence=door.fence,
        last_event=door.last_event,
        held_event=door.held_event,
        window=door.window,
        start=door.start,
        length=door.length,
        holder=door.holder,
        lease_until=door.lease_until,
        lease_boot=door.lease_boot,
        running=door.running,
        cancelling=door.cancelling,
        waiting=door.waiting,
        steering=door.steering,
        queued=door.queued,
        turns=door.turns,
        activity=door.activity,
        touched_at=door.touched_at,
        preview=door.preview,
    )
    if door.touched_at - door.active_at >= LIST_GRAIN_MS:
        door.active_at = door.touched_at
        tx.run("move_up", session=door.id, active_at=door.active_at)
