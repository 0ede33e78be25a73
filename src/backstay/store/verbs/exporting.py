"""Exporting: all that is known of a session, read at one moment."""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import cast

from msgspec.structs import replace

from backstay.model.address import Family
from backstay.model.codec import decode_event, decode_metadata, decode_names, decode_usage
from backstay.model.export import (
    FORMAT,
    TO_SESSION,
    Beginning,
    Export,
    ExportedAddress,
    ExportedBlob,
    ExportedEvent,
    ExportedRequest,
    ExportedTurn,
    ExportedWindow,
    Facts,
    Reference,
    Segment,
)
from backstay.model.ids import SessionId, WindowId
from backstay.model.message import Message
from backstay.model.session import SessionState
from backstay.model.turn import OUTCOMES, Call
from backstay.model.window import Window
from backstay.store.door import Door, find
from backstay.store.engine import Row, Transaction
from backstay.store.verbs import blobs, marks, messages, windows
from backstay.store.verbs.submitting import request_key
from backstay.store.verbs.turns import TurnRow, call_value
from backstay.store.verbs.windows import END, Needed, Stretch


def export(tx: Transaction, session: SessionId, owner: str) -> Export:
    """A session and what it rests on, as one document."""
    door = find(tx, session, owner)
    ancestors = tuple(_ancestors(tx, session))
    turns = tuple(_turns(tx, door))
    document = Export(
        format=FORMAT,
        session=_facts(door),
        ancestors=ancestors,
        addresses=tuple(_addresses(tx, door)),
        marks=marks.get(tx, session, owner),
        windows=(*_windows_of_ancestors(tx, session, ancestors), *_own_windows(tx, session)),
        turns=turns,
        calls=tuple(_calls(tx, turns)),
        events=tuple(_events(tx, session)),
    )
    return replace(document, attachments=tuple(_blobs(tx, owner, document.attached())))


def _facts(door: Door) -> Facts:
    return Facts(
        id=door.id,
        window=door.window,
        revision=door.revision,
        context=door.context,
        fence=door.fence,
        last_event=door.last_event,
        created_at=door.created_at,
        touched_at=door.touched_at,
        active_at=door.active_at,
        state=cast(SessionState, door.state),  # the door of a deleted session is not found
        ended_at=door.ended_at,
        queued=door.queued,
        turns=door.turns,
        activity=door.activity,
        title=door.title,
        title_by=door.title_by,
        preview=door.preview,
        pinned=bool(door.pinned),
        archived=bool(door.archived),
        tags=decode_names(f"tags of {door.id}", door.tags),
        family=cast(Family | None, door.family),  # taken from an address
        place=door.place,
        idle_ttl=door.idle_ttl,
        expires_by=door.expires_by,
        metadata=decode_metadata(f"metadata of {door.id}", door.metadata),
        agent=door.agent,
    )


def _ancestors(tx: Transaction, session: SessionId) -> Iterator[SessionId]:
    """The sessions that this one was forked from, the nearest first, deleted or not."""
    row = tx.one("source_of", session=session)
    while row is not None and row[0] is not None:
        yield row[0]
        row = tx.one("source_of", session=row[0])


def _addresses(tx: Transaction, door: Door) -> Iterator[ExportedAddress]:
    for spelling, generation in tx.all("addresses_to_export", session=door.id, owner=door.owner):
        yield ExportedAddress(spelling=spelling, generation=generation)


# --- windows ----------------------------------------------------------------------------------------------------------


def _own_windows(tx: Transaction, session: SessionId) -> Iterator[ExportedWindow]:
    for row in tx.all("lineage", session=session):
        window = windows.value(row)
        said = messages.read(tx, Stretch(0, window.id, 0, END))
        yield _window(tx, window, said, window.parent, until=END)


def _windows_of_ancestors(
    tx: Transaction, session: SessionId, ancestors: Iterable[SessionId]
) -> Iterator[ExportedWindow]:
    """As much of the ancestors' windows as the session needs: what a deletion of all ancestors would leave.

    Oldest ancestor first, so that nothing rests on what stands after it.
    """
    found = [windows.value(row) for one in reversed([*ancestors]) for row in tx.all("lineage", session=one)]
    needed = Needed(tx, {window.id for window in found}, [session])
    kept = [window for window in found if window.id in needed.read or window.id in needed.sources]
    here = {window.id for window in kept}
    for window in kept:
        said = list(_read_some(tx, window.id, needed.sources.get(window.id, [])))
        parent = window.parent if window.parent in here else None
        yield _window(tx, window, said, parent, until=needed.read.get(window.id))


def _read_some(tx: Transaction, window: WindowId, parts: Iterable[Stretch]) -> Iterator[Message]:
    """The messages in any of these parts, each once."""
    position = 0
    for part in sorted(parts, key=lambda part: part.low):
        yield from messages.read(tx, Stretch(part.low, window, part.low, part.high), low=position)
        position = max(position, part.high)


def _window(
    tx: Transaction, window: Window, said: Iterable[Message], parent: WindowId | None, *, until: int | None
) -> ExportedWindow:
    """A window up to a position; without one, only as the place where messages lie."""
    return ExportedWindow(
        id=window.id,
        session=window.session,
        parent=parent,
        reason=window.reason,
        start=window.start,
        event=window.event,
        at=window.at,
        base=None if until is None else _base(tx, window, until),
        behind=None if until is None else _beginning(window.behind, window.behind_until),
        segments=() if until is None else tuple(map(_segment, windows.own_stretches(tx, window.id, until))),
        messages=tuple(said),
    )


def _base(tx: Transaction, window: Window, until: int) -> Beginning | None:
    row = tx.one("base_of", window=window.id)
    return None if row is None or row[0] is None else Beginning(window=row[0], until=min(row[1], until))


def _beginning(window: WindowId | None, until: int | None) -> Beginning | None:
    return None if window is None or until is None else Beginning(window=window, until=until)


def _segment(part: Stretch) -> Segment:
    high = None if part.high == END else part.high
    return Segment(start=part.start, source=part.source, low=part.low, high=high)


# --- turns and events -------------------------------------------------------------------------------------------------


def _turns(tx: Transaction, door: Door) -> Iterator[ExportedTurn]:
    scopes = _Scopes(tx, door)
    for *columns, place, key, fingerprint in tx.all("turns_to_export", session=door.id):
        row = TurnRow(*columns)
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
            outcome=None if row.outcome is None else OUTCOMES[row.outcome](row.reason),
            steer=bool(row.steer),
            taken_by=row.taken_by,
            cancel_requested=bool(row.cancel_requested),
            place=place,
            input=row.parts() if waits and not row.is_record else None,
            record=row.messages() if waits and row.is_record else None,
            request=None if row.request_id is None else scopes.request(row, bytes(key), bytes(fingerprint)),
            usage=decode_usage(row.id, row.usage),
            forgotten=bool(row.forgotten),
        )


class _Scopes:
    """What the requests of a session were sent to. A key does not tell, so what it can have been is tried."""

    def __init__(self, tx: Transaction, door: Door) -> None:
        self._tx, self._door = tx, door
        self._likely = [row[0] for row in tx.all("addresses_of", session=door.id, owner=door.owner)]
        self._others: list[str] | None = None

    def request(self, row: TurnRow, key: bytes, fingerprint: bytes) -> ExportedRequest:
        """By which id and scope a redelivery of this turn would be known."""
        request = row.request_id or ""
        return ExportedRequest(id=request, hash=fingerprint.hex(), scope=self._scope(row, request, key))

    def _scope(self, row: TurnRow, request: str, key: bytes) -> str | None:
        owner = self._door.owner
        if key == request_key(owner, self._door.id, request):
            return TO_SESSION
        if key == request_key(owner, row.id, request):
            return None
        for spelling in self._candidates():
            if key == request_key(owner, sha256(spelling.encode()).hexdigest(), request):
                if spelling not in self._likely:
                    self._likely.insert(0, spelling)
                return spelling
        return None

    def _candidates(self) -> Iterator[str]:
        """The addresses that lead here; then all of the owner's, one of which may have led here before."""
        yield from tuple(self._likely)
        if self._others is None:
            self._others = [row[0] for row in self._tx.all("spellings", owner=self._door.owner)]
        yield from self._others


def _calls(tx: Transaction, turns: Iterable[ExportedTurn]) -> Iterator[Call]:
    return (call_value(row) for turn in turns for row in tx.all("calls", turn=turn.id))


def _events(tx: Transaction, session: SessionId) -> Iterator[ExportedEvent]:
    return (_event(session, row) for row in tx.all("events_after", session=session, number=0, limit=END))


def _event(session: SessionId, row: Row) -> ExportedEvent:
    number, last, fence, at, turn, version, body, source, low, high = row
    said = None if source is None else Reference(window=source, low=low, high=high)
    decoded = decode_event(f"event {number} of {session}", version, body)
    return ExportedEvent(number=number, last=last, fence=fence, at=at, turn=turn, body=decoded, said=said)


def _blobs(tx: Transaction, owner: str, hashes: Iterable[str]) -> Iterator[ExportedBlob]:
    for name in hashes:
        size = blobs.get(tx, name, owner).size
        yield ExportedBlob(hash=name, data=blobs.read(tx, name, owner, 0, size))
