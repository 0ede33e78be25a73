"""The row of a schedule and its log. A change writes the row once, unless another transaction changed it first."""

from types import TracebackType
from typing import Self

import msgspec

from backstay.errors import NotFound
from backstay.model.addresses.address import Address
from backstay.model.ids import ScheduleId, SessionId, TurnId, check_session_id
from backstay.model.schedules.recurrence import When
from backstay.model.schedules.schedule import IfMissed, Schedule, ScheduleEntry, ScheduleState, ScheduleStep
from backstay.model.schedules.when_parser import parse_when
from backstay.model.turn import IfBusy
from backstay.store.engine import Transaction
from backstay.store.rows import Rows

# So many entries of the log of a schedule are kept.
KEPT_ENTRIES = 100


class ScheduleRow(msgspec.Struct):
    """The row of a schedule."""

    id: ScheduleId
    owner: str
    timing: str
    target: str
    agent: str | None
    message: str
    if_busy: IfBusy
    if_missed: IfMissed
    state: ScheduleState
    revision: int
    next_due: int | None
    asked_due: int | None
    request_hash: bytes | None
    created_at: int

    @property
    def when(self) -> When:
        """Its due times. The stored spelling has its zone."""
        return parse_when(self.timing, "UTC")

    @property
    def to(self) -> Address | SessionId:
        """The session or the address that receives the message."""
        return check_session_id(self.target) if self.target.startswith("ses_") else Address.parse(self.target)

    def value(self, last: ScheduleEntry) -> Schedule:
        """The schedule as a caller sees it."""
        return Schedule(
            id=self.id,
            owner=self.owner,
            when=self.timing,
            to=self.target,
            agent=self.agent,
            text=self.message,
            if_busy=self.if_busy,
            if_missed=self.if_missed,
            state=self.state,
            revision=self.revision,
            created_at=self.created_at,
            next_due=self.next_due,
            asked_due=self.asked_due,
            last=last,
        )


class _OwnedEntry(msgspec.Struct, kw_only=True):
    """An entry of the log, and its schedule."""

    schedule: ScheduleId
    number: int
    at: int
    step: ScheduleStep
    due: int | None
    missed: int
    session: SessionId | None
    turn: TurnId | None
    reason: str | None

    def value(self) -> ScheduleEntry:
        fields = msgspec.structs.asdict(self)
        del fields["schedule"]
        return ScheduleEntry(**fields)


SCHEDULE = Rows("schedule", ScheduleRow)
OF_REQUEST = Rows("schedule_of_request", ScheduleRow)
_OF_OWNER = Rows("schedules_of", ScheduleRow)
_NEWEST = Rows("newest_entries", _OwnedEntry)
LOG = Rows("schedule_log", ScheduleEntry)


def find(tx: Transaction, schedule: ScheduleId, owner: str) -> ScheduleRow:
    """The row of a schedule. Raises `NotFound`, also for another owner's."""
    row = SCHEDULE.one(tx, schedule=schedule, owner=owner)
    if row is None:
        raise NotFound(f"no schedule {schedule} of {owner!r}")
    return row


def shown(tx: Transaction, row: ScheduleRow) -> Schedule:
    """The schedule, with the newest entry of its log."""
    (last,) = LOG.all(tx, schedule=row.id, limit=1)
    return row.value(last)


def of_owner(tx: Transaction, owner: str) -> tuple[Schedule, ...]:
    """All schedules of an owner, oldest first."""
    newest = {entry.schedule: entry.value() for entry in _NEWEST.all(tx, owner=owner)}
    return tuple(row.value(newest[row.id]) for row in _OF_OWNER.all(tx, owner=owner) if row.id in newest)


class ScheduleChange:
    """A change of a schedule. Leaving the `with` block writes the row, unless the block raised or added no entry.

    Raises:
        Overtaken: Another transaction changed the schedule since it was read. The engine runs the verb again.
    """

    def __init__(self, tx: Transaction, row: ScheduleRow) -> None:
        self._tx, self.row, self._found = tx, row, row.revision
        self.entries: list[ScheduleEntry] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None or not self.entries:
            return
        row, tx = self.row, self._tx
        if row.next_due is None and row.asked_due is None:
            row.state = "ended"
        tx.run_guarded(
            "write_schedule",
            schedule=row.id,
            found=self._found,
            state=row.state,
            revision=row.revision,
            next_due=row.next_due,
            asked_due=row.asked_due,
        )
        for entry in self.entries:
            add_entry(tx, row.id, entry)
        tx.run("drop_schedule_entries", schedule=row.id, until=row.revision - KEPT_ENTRIES)

    def note(
        self,
        step: ScheduleStep,
        *,
        due: int | None = None,
        missed: int = 0,
        session: SessionId | None = None,
        turn: TurnId | None = None,
        reason: str | None = None,
    ) -> None:
        """Add an entry to the log; the revision of the schedule is its number."""
        self.row.revision += 1
        self.entries.append(
            ScheduleEntry(
                number=self.row.revision,
                at=self._tx.now,
                step=step,
                due=due,
                missed=missed,
                session=session,
                turn=turn,
                reason=reason,
            )
        )

    def value(self) -> Schedule:
        """The schedule after the change."""
        return self.row.value(self.entries[-1]) if self.entries else shown(self._tx, self.row)


def add_entry(tx: Transaction, schedule: ScheduleId, entry: ScheduleEntry) -> None:
    """Store an entry of the log."""
    tx.run(
        "add_schedule_entry",
        schedule=schedule,
        number=entry.number,
        now=entry.at,
        step=entry.step,
        due=entry.due,
        missed=entry.missed,
        session=entry.session,
        turn=entry.turn,
        reason=entry.reason,
    )
