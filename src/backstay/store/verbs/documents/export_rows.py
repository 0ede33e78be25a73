"""The steps of an export: everything that is stored of a session at one moment, read in short transactions."""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import BinaryIO, NamedTuple, cast

from backstay.model.addresses.address import Family
from backstay.model.codec import decode_metadata, decode_names, decode_usage
from backstay.model.content import Part, attachments_in
from backstay.model.documents.document import (
    TO_SESSION,
    Beginning,
    ExportedAddress,
    ExportedEvent,
    ExportedRequest,
    ExportedSession,
    ExportedTurn,
    ExportedWindow,
    Segment,
)
from backstay.model.documents.inspection.ranges import Range, joined_ranges
from backstay.model.documents.records import CHUNK, LINES, Header, line_of
from backstay.model.ids import SessionId, TurnId, WindowId
from backstay.model.message import Message
from backstay.model.session import SessionState
from backstay.model.turn import ToolCallRecord, outcome_of
from backstay.model.window import Window
from backstay.store.engine import Transaction
from backstay.store.rows import Rows, value, values
from backstay.store.session_row import SessionRow, find
from backstay.store.verbs import blob_store, reader_marks
from backstay.store.verbs.history import window_segments
from backstay.store.verbs.history.window_segments import END, LINEAGE, Needed, WindowSegment
from backstay.store.verbs.turns import event_log, messages
from backstay.store.verbs.turns.submission import first_key, request_key
from backstay.store.verbs.turns.turn_row import CALLS, TurnRow

# The limits of a page, in rows and bytes. A single row that is longer is a page by itself.
PAGE = 200
PAGE_BYTES = 256 << 10


class Changed(Exception):
    """The session changed so that earlier pages do not fit to later ones. The export begins again."""


class Snapshot(NamedTuple):
    """The parts of a session that can change, read at one moment, and where the parts are that never change.

    Turns and calls are in a file. Messages are at these positions of the windows. Events go up to the last one.
    """

    header: Header
    owner: str
    windows: list[tuple[ExportedWindow, list[Range]]]
    attached: tuple[str, ...]
    unfolded: "Unfolded | None"


class Unfolded(NamedTuple):
    """The values that a fold changes: the number of turns with a first event, and the sum of these event numbers."""

    turns: int
    first_events: int


class _SizedMessage(NamedTuple):
    """The position and the size of a message."""

    position: int
    size: int


class _AddressRow(NamedTuple):
    """An address of the session."""

    spelling: str
    generation: int


class _TurnWithCalls(NamedTuple):
    """A turn that made calls, and its event."""

    event: int
    turn: TurnId


class _TurnToExport(TurnRow, kw_only=True):
    """The whole row of a turn."""

    place: int
    request_owner: str | None
    request_key: bytes | None
    request_hash: bytes | None


_UNFOLDED = Rows("unfolded_turns", Unfolded)
_SIZES_OF_MESSAGES = Rows("sizes_of_messages", _SizedMessage)
_ADDRESSES = Rows("addresses_to_export", _AddressRow)
_TURNS = Rows("turns_to_export", _TurnToExport)
_TURNS_WITH_CALLS = Rows("turns_with_calls", _TurnWithCalls)


def snapshot(tx: Transaction, session: SessionId, owner: str, spool: BinaryIO) -> Snapshot:
    """Read everything that can change, at one moment. Turns and calls are written to the file as lines."""
    spool.seek(0)
    spool.truncate()
    session_row = find(tx, session, owner)
    ancestors = tuple(_ancestors(tx, session))
    header = Header(
        format=LINES,
        session=_facts(session_row),
        ancestors=ancestors,
        addresses=tuple(_addresses(tx, session_row)),
        marks=reader_marks.get(tx, session, owner),
    )
    attached: dict[str, None] = {}
    for turn in _turns(tx, session_row):
        spool.write(line_of(turn))
        attached.update(dict.fromkeys(attached_in(turn.waits_with())))
    spool.writelines(line_of(call) for call in _calls(tx, session))
    return Snapshot(
        header=header,
        owner=owner,
        windows=[*_windows_of_ancestors(tx, session, ancestors), *_own_windows(tx, session)],
        attached=tuple(attached),
        unfolded=_unfolded(tx, header.session),
    )


def check_unchanged(tx: Transaction, seen: Snapshot) -> None:
    """Raise `Changed` if a turn was folded since, and `NotFound` if the session was deleted."""
    find(tx, seen.header.session.id, seen.owner)
    if _unfolded(tx, seen.header.session) != seen.unfolded:
        raise Changed


def was_written(tx: Transaction, seen: Snapshot) -> bool:
    """Whether the session was written since."""
    facts = find(tx, seen.header.session.id, seen.owner)
    before = seen.header.session
    moved = (facts.revision, facts.fence, facts.last_event) != (before.revision, before.fence, before.last_event)
    return moved or _unfolded(tx, before) != seen.unfolded


def _unfolded(tx: Transaction, facts: ExportedSession) -> Unfolded | None:
    return _UNFOLDED.one(tx, session=facts.id, last=facts.last_event)


def message_page(tx: Transaction, window: WindowId, low: int, high: int) -> list[Message]:
    """The next messages that were written in a window, from one position to another."""
    rows = _SIZES_OF_MESSAGES.all(tx, window=window, low=low, high=high, limit=PAGE)
    if not rows:
        return []
    last = rows[_fitting([row.size for row in rows]) - 1].position
    return messages.read(tx, WindowSegment(low, window, low, last + 1))


def event_page(tx: Transaction, session: SessionId, number: int, last: int) -> list[ExportedEvent]:
    """The next events after a number."""
    sizes = values(tx, "sizes_of_events", session=session, number=number, last=last, limit=PAGE)
    return event_log.to_export(tx, session, number, last, _fitting(sizes)) if sizes else []


def blob_page(tx: Transaction, name: str, owner: str, start: int) -> bytes:
    """The next bytes of an attachment."""
    return blob_store.read(tx, name, owner, start, CHUNK)


def _fitting(sizes: Sequence[int]) -> int:
    """The number of rows that fit on a page."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if count and total > PAGE_BYTES:
            return count
    return len(sizes)


def attached_in(parts: Iterable[Part]) -> Iterator[str]:
    """The hashes of the attachments among these parts."""
    return (file.blob for file in attachments_in(parts))


def _facts(session_row: SessionRow) -> ExportedSession:
    return ExportedSession(
        id=session_row.id,
        window=session_row.window,
        revision=session_row.revision,
        context=session_row.context,
        fence=session_row.fence,
        last_event=session_row.last_event,
        created_at=session_row.created_at,
        touched_at=session_row.touched_at,
        active_at=session_row.active_at,
        state=cast(SessionState, session_row.state),  # deleted sessions are not found
        ended_at=session_row.ended_at,
        queued=session_row.queued,
        turns=session_row.turns,
        activity=session_row.activity,
        title=session_row.title,
        title_by=session_row.title_by,
        preview=session_row.preview,
        pinned=bool(session_row.pinned),
        archived=bool(session_row.archived),
        tags=decode_names(f"tags of {session_row.id}", session_row.tags),
        family=cast(Family | None, session_row.family),  # taken from an address
        place=session_row.place,
        idle_ttl=session_row.idle_ttl,
        expires_by=session_row.expires_by,
        metadata=decode_metadata(f"metadata of {session_row.id}", session_row.metadata),
        agent=session_row.agent,
    )


def _ancestors(tx: Transaction, session: SessionId) -> Iterator[SessionId]:
    """The sessions that this one was forked from, the nearest first, deleted or not."""
    source: SessionId | None = value(tx, "source_of", session=session)
    while source is not None:
        yield source
        source = value(tx, "source_of", session=source)


def _addresses(tx: Transaction, session_row: SessionRow) -> Iterator[ExportedAddress]:
    for address in _ADDRESSES.all(tx, session=session_row.id, owner=session_row.owner):
        yield ExportedAddress(spelling=address.spelling, generation=address.generation)


# --- windows ----------------------------------------------------------------------------------------------------------


def _own_windows(tx: Transaction, session: SessionId) -> Iterator[tuple[ExportedWindow, list[Range]]]:
    for window in LINEAGE.all(tx, session=session):
        yield _window(tx, window, window.parent, until=END), [(0, window_segments.end_of(tx, window.id))]


def _windows_of_ancestors(
    tx: Transaction, session: SessionId, ancestors: Iterable[SessionId]
) -> Iterator[tuple[ExportedWindow, list[Range]]]:
    """The parts of the ancestors' windows that the session needs: those that a deletion of all ancestors would leave.

    The oldest ancestor comes first, so that no window depends on a later one.
    """
    found = [window for one in reversed([*ancestors]) for window in LINEAGE.all(tx, session=one)]
    needed = Needed(tx, {window.id for window in found}, [session])
    kept = [window for window in found if window.id in needed.read or window.id in needed.sources]
    here = {window.id for window in kept}
    for window in kept:
        end = window_segments.end_of(tx, window.id)
        parts = joined_ranges((part.low, min(part.high, end)) for part in needed.sources.get(window.id, []))
        parent = window.parent if window.parent in here else None
        yield _window(tx, window, parent, until=needed.read.get(window.id)), parts


def _window(tx: Transaction, window: Window, parent: WindowId | None, *, until: int | None) -> ExportedWindow:
    """A window up to a position; without one, only as the container of messages."""
    return ExportedWindow(
        id=window.id,
        session=window.session,
        parent=parent,
        reason=window.reason,
        start=window.start,
        event=window.event,
        at=window.at,
        base=None if until is None else _base(tx, window, until),
        summarises=None if until is None else _beginning(window.summarises, window.summarises_until),
        segments=() if until is None else tuple(map(_segment, window_segments.own_segments(tx, window.id, until))),
    )


def _base(tx: Transaction, window: Window, until: int) -> Beginning | None:
    bases = window_segments.bases_of(tx, window.id)
    if bases.base is None or bases.base_until is None:
        return None
    return Beginning(window=bases.base, until=min(bases.base_until, until))


def _beginning(window: WindowId | None, until: int | None) -> Beginning | None:
    return None if window is None or until is None else Beginning(window=window, until=until)


def _segment(part: WindowSegment) -> Segment:
    high = None if part.high == END else part.high
    return Segment(start=part.start, source=part.source, low=part.low, high=high)


# --- turns and events -------------------------------------------------------------------------------------------------


def _turns(tx: Transaction, session_row: SessionRow) -> Iterator[ExportedTurn]:
    scopes = _Scopes(tx, session_row)
    for row in _turn_rows(tx, session_row.id):
        waits = row.state == "waiting"
        yield ExportedTurn(
            id=row.id,
            root=row.root,
            agent=row.agent,
            state=row.state,
            event=row.event,
            created_at=row.created_at,
            first_event=row.first_event,
            started_at=row.started_at,
            ended_at=row.ended_at,
            outcome=None if row.outcome is None else outcome_of(row.outcome, row.reason, row.code, row.hint),
            steer=bool(row.steer),
            taken_by=row.taken_by,
            cancel_requested=bool(row.cancel_requested),
            place=row.place,
            input=row.parts() if waits and not row.is_record else None,
            record=row.messages() if waits and row.is_record else None,
            request=None if row.request_id is None else scopes.request(row),
            usage=decode_usage(row.id, row.usage),
            forgotten=bool(row.forgotten),
            held=waits and bool(row.held),
        )


def _turn_rows(tx: Transaction, session: SessionId) -> Iterator[_TurnToExport]:
    """All turns, page by page."""
    event, turn = -1, TurnId("")
    while sizes := values(tx, "sizes_of_turns", session=session, event=event, turn=turn, limit=PAGE):
        for row in _TURNS.all(tx, session=session, event=event, turn=turn, limit=_fitting(sizes)):
            yield row
            event, turn = row.event, row.id


class _Scopes:
    """The destinations of the requests of a session. A key is a hash, so the possible destinations are tried."""

    def __init__(self, tx: Transaction, session_row: SessionRow) -> None:
        self._tx, self._session_row = tx, session_row
        self._likely: list[str] = values(tx, "addresses_of", session=session_row.id, owner=session_row.owner)
        self._others: list[str] | None = None

    def request(self, row: _TurnToExport) -> ExportedRequest:
        """The id and scope that a redelivery of this turn has; without a scope, if it would not be recognised."""
        request, fingerprint = row.request_id or "", bytes(row.request_hash or b"")
        known = row.request_owner is not None
        scope = self._scope(request, first_key(bytes(row.request_key or b""))) if known else None
        return ExportedRequest(id=request, hash=fingerprint.hex(), scope=scope)

    def _scope(self, request: str, key: bytes) -> str:
        owner = self._session_row.owner
        if key == request_key(owner, self._session_row.id, request):
            return TO_SESSION
        for spelling in self._candidates():
            if key == request_key(owner, sha256(spelling.encode()).hexdigest(), request):
                if spelling not in self._likely:
                    self._likely.insert(0, spelling)
                return spelling
        return TO_SESSION

    def _candidates(self) -> Iterator[str]:
        """The addresses of the session, then all of the owner: one of them may have led to it before."""
        yield from tuple(self._likely)
        if self._others is None:
            self._others = values(self._tx, "spellings", owner=self._session_row.owner)
        yield from self._others


def _calls(tx: Transaction, session: SessionId) -> Iterator[ToolCallRecord]:
    event, turn = -1, TurnId("")
    while rows := _TURNS_WITH_CALLS.all(tx, session=session, event=event, turn=turn, limit=PAGE):
        for row in rows:
            yield from CALLS.all(tx, turn=row.turn)
        event, turn = rows[-1].event, rows[-1].turn
