"""Windows: stretches of messages, strung together so that undo, fork and compaction copy nothing.

A window reads the first messages of its base, if it has one, then its segments. Segments name messages where they were
said, so reading a window is a few range scans however often it was cut. When a window would get more than `MOST`
segments, it takes the window it was cut from as its base and starts a new list.
"""

from collections.abc import Iterable
from typing import NamedTuple

from backstay.errors import CorruptRecord
from backstay.model.ids import MessageId, SessionId, TurnId, WindowId
from backstay.model.window import Window, WindowReason
from backstay.store.engine import Row, Transaction

END = 1 << 62
MOST = 64


class Stretch(NamedTuple):
    """Messages `low` to `high` of `source`, standing in a window from position `start` on."""

    start: int
    source: WindowId
    low: int
    high: int

    def between(self, low: int, high: int) -> "Stretch | None":
        """The part of it that stands between these positions of the window."""
        ahead = max(low - self.start, 0)
        first, last = self.low + ahead, min(self.high, self.low + high - self.start)
        return Stretch(self.start + ahead, self.source, first, last) if first < last else None


class Spot(NamedTuple):
    """A place in a window: before the message at this position."""

    window: WindowId
    position: int


class Roots(NamedTuple):
    """What a window begins with, and what its summary stands for."""

    base: WindowId | None
    base_until: int | None
    behind: WindowId | None
    behind_until: int | None


def value(row: Row) -> Window:
    """A window's row as a caller sees it."""
    window, session, parent, reason, start, event, at, behind, behind_until = row
    return Window(
        id=window,
        session=session,
        parent=parent,
        reason=reason,
        start=start,
        event=event,
        at=at,
        behind=behind,
        behind_until=behind_until,
    )


def get(tx: Transaction, window: WindowId) -> Window:
    """The window, which must exist."""
    row = tx.one("window", window=window)
    if row is None:
        raise CorruptRecord(window, "is missing")
    return value(row)


def stretches(tx: Transaction, window: WindowId, until: int = END) -> list[Stretch]:
    """The first `until` messages of a window, as stretches in reading order."""
    found: list[Stretch] = []
    while True:
        found[:0] = own_stretches(tx, window, until)
        roots = _roots(tx, window)
        if roots.base is None or roots.base_until is None:
            return found
        window, until = roots.base, min(until, roots.base_until)


def length(tx: Transaction, window: WindowId) -> int:
    """How many messages a window has."""
    row = tx.one("end_of_window", window=window)
    end = row[0] if row else None
    return max(end or 0, get(tx, window).start)


class Opening(NamedTuple):
    """A window that is being opened: in which session, told of by which event, coming from where, and why."""

    session: SessionId
    event: int
    parent: WindowId | None
    reason: WindowReason


def open_first(tx: Transaction, window: WindowId, opening: Opening) -> None:
    """A new session's empty window."""
    _add(tx, window, opening, start=0, roots=Roots(None, None, None, None))
    add_segment(tx, window, Stretch(0, window, 0, END))


def open_cut(tx: Transaction, window: WindowId, opening: Opening, spot: Spot) -> None:
    """A new window that reads what stands before the spot, and in which something else can be said."""
    roots, shared = _shared_before(tx, spot)
    _add(tx, window, opening, start=spot.position, roots=roots)
    for stretch in shared:
        add_segment(tx, window, stretch)
    add_segment(tx, window, Stretch(spot.position, window, spot.position, END))


def open_without(
    tx: Transaction, window: WindowId, opening: Opening, spot: Spot, *, after: range, replaced: bool
) -> int:
    """A new window that reads all but the message at the spot: with `replaced`, its own stands there. Also its start.

    `after` are the positions of what follows in the window it is cut from.
    """
    roots, shared = _shared_before(tx, spot)
    follows = spot.position + replaced
    # What is said in its place counts to what comes after the start only if nothing follows it.
    start = follows + len(after) if after else spot.position
    _add(tx, window, opening, start=start, roots=roots)
    for stretch in shared:
        add_segment(tx, window, stretch)
    if replaced and after:
        add_segment(tx, window, Stretch(spot.position, window, spot.position, follows))
    for stretch in stretches(tx, spot.window, after.stop) if after else ():
        part = stretch.between(after.start, after.stop)
        if part is not None:
            add_segment(tx, window, part._replace(start=part.start - after.start + follows))
    add_segment(tx, window, Stretch(start, window, start, END))
    return start


def open_compacted(tx: Transaction, window: WindowId, opening: Opening, *, kept: range, summaries: int) -> int:
    """A new window: room for the summaries, then the messages of its parent at these positions. Also its length."""
    parent = opening.parent or WindowId("")
    start = summaries + len(kept)
    _add(tx, window, opening, start=start, roots=Roots(None, None, parent, kept.start))
    add_segment(tx, window, Stretch(0, window, 0, summaries))
    for stretch in stretches(tx, parent, kept.stop):
        part = stretch.between(kept.start, kept.stop)
        if part is not None:
            add_segment(tx, window, part._replace(start=part.start - kept.start + summaries))
    add_segment(tx, window, Stretch(start, window, start, END))
    return start


def locate(tx: Transaction, window: WindowId, message: MessageId) -> Spot | None:
    """Where a message stands: in this window, or in one that its summary stands for."""
    place = tx.one("message_place", message=message)
    if place is None:
        return None
    source, position = place[0], place[1]
    here: WindowId | None = window
    until = END
    while here is not None:
        for part in stretches(tx, here, until):
            if part.source == source and part.low <= position < part.high:
                return Spot(here, part.start + position - part.low)
        roots = _roots(tx, here)
        here, until = roots.behind, roots.behind_until or 0
    return None


def stands_behind(tx: Transaction, window: WindowId, other: WindowId) -> bool:
    """Whether a summary of this window, or of one that it stands for, stands for the other."""
    here: WindowId | None = window
    while here is not None and here != other:
        here = _roots(tx, here).behind
    return here is not None


def end_of_turn(tx: Transaction, spot: Spot, turn: TurnId) -> Spot:
    """The spot behind the last message of a turn, one of whose messages stands at this one."""
    for part in stretches(tx, spot.window):
        rest = part.between(spot.position, END)
        if rest is None:
            continue
        row = tx.one("other_turn_after", window=rest.source, low=rest.low, high=rest.high, turn=turn)
        if row is not None:
            return Spot(spot.window, rest.start + row[0] - rest.low)
    return Spot(spot.window, length(tx, spot.window))


def last_turn(tx: Transaction, window: WindowId, until: int = END) -> tuple[TurnId, Spot] | None:
    """The last turn among a window's first `until` messages, and the spot before it.

    A turn that a compaction cut in two begins in the window behind; so does the last turn when all that is left of the
    conversation here is its summary.
    """
    latest: tuple[TurnId, Spot] | None = None
    here: WindowId | None = window
    while here is not None:
        found = _last_turn_here(tx, here, until)
        if found is not None:
            if latest is not None and found.turn != latest[0]:
                return latest
            latest = found.turn, found.spot
            if not found.at_edge:
                return latest
        roots = _roots(tx, here)
        here, until = roots.behind, roots.behind_until or 0
    return latest


def reading(tx: Transaction, window: WindowId) -> list[Stretch]:
    """Every stretch that can be reached from a window: what it reads, and what its summaries stand for."""
    found: list[Stretch] = []
    here: WindowId | None = window
    until = END
    while here is not None:
        found += stretches(tx, here, until)
        roots = _roots(tx, here)
        here, until = roots.behind, roots.behind_until or 0
    return found


def own_stretches(tx: Transaction, window: WindowId, until: int) -> list[Stretch]:
    """What a window's own segments contribute to its first `until` messages; its base not included."""
    parts = (Stretch(*row).between(0, until) for row in tx.all("segments", window=window))
    return [part for part in parts if part is not None]


def rests_on(tx: Transaction, window: WindowId, until: int) -> list[tuple[WindowId, int]]:
    """What else the first `until` messages of a window need: the window they begin with, and what a summary stands for.

    Each with how many of its messages.
    """
    roots = _roots(tx, window)
    found = []
    if roots.base is not None and roots.base_until is not None:
        found.append((roots.base, min(roots.base_until, until)))
    if roots.behind is not None and roots.behind_until is not None:
        found.append((roots.behind, roots.behind_until))
    return found


class Needed:
    """What some sessions need of windows that are about to go, or to be left behind.

    `read`: how many messages of a window are read as such; `sources`: which messages that were said in it.
    """

    def __init__(self, tx: Transaction, theirs: set[WindowId], sessions: Iterable[SessionId]) -> None:
        self.read: dict[WindowId, int] = {}
        self.sources: dict[WindowId, list[Stretch]] = {}
        self._tx, self._theirs = tx, theirs
        self._seen: dict[WindowId, int] = {}
        for session in sessions:
            for window in tx.all("windows_of", session=session):
                self._visit(window[0])

    def _visit(self, window: WindowId) -> None:
        """Follow a window to everything it reads, and everything its summaries stand for."""
        stack = [(window, END)]
        while stack:
            here, until = stack.pop()
            if until <= self._seen.get(here, 0):
                continue
            self._seen[here] = until
            if here in self._theirs:
                self.read[here] = until
            for part in own_stretches(self._tx, here, until):
                if part.source in self._theirs:
                    self.sources.setdefault(part.source, []).append(part)
            stack += rests_on(self._tx, here, until)


class _Found(NamedTuple):
    """A turn, the spot before it, and whether nothing but a summary stands before that."""

    turn: TurnId
    spot: Spot
    at_edge: bool


def _last_turn_here(tx: Transaction, window: WindowId, until: int) -> _Found | None:
    turn: TurnId | None = None
    index = 0
    for part in reversed(stretches(tx, window, until)):
        high = part.high
        if turn is None:
            row = tx.one("last_with_turn", window=part.source, low=part.low, high=high)
            if row is None:
                continue
            high, turn = row[0] + 1, row[1]
        row = tx.one("other_turn_before", window=part.source, low=part.low, high=high, turn=turn)
        if row is not None:
            spot = Spot(window, part.start + row[0] + 1 - part.low)
            return _Found(turn, spot, at_edge=row[1] is None)
        index = part.start
    return None if turn is None else _Found(turn, Spot(window, index), at_edge=True)


def _shared_before(tx: Transaction, spot: Spot) -> tuple[Roots, list[Stretch]]:
    roots = _roots(tx, spot.window)
    parts = own_stretches(tx, spot.window, spot.position)
    behind = (roots.behind, roots.behind_until) if spot.position else (None, None)
    if len(parts) >= MOST:
        return Roots(spot.window, spot.position, *behind), []
    if roots.base is None or roots.base_until is None or not spot.position:
        return Roots(None, None, *behind), parts
    return Roots(roots.base, min(roots.base_until, spot.position), *behind), parts


def _roots(tx: Transaction, window: WindowId) -> Roots:
    row = tx.one("base_of", window=window)
    if row is None:
        raise CorruptRecord(window, "is missing")
    return Roots(*row)


def _add(tx: Transaction, window: WindowId, opening: Opening, *, start: int, roots: Roots) -> None:
    tx.run(
        "add_window",
        window=window,
        session=opening.session,
        parent=opening.parent,
        reason=opening.reason,
        start=start,
        base=roots.base,
        base_until=roots.base_until,
        behind=roots.behind,
        behind_until=roots.behind_until,
        event=opening.event,
        now=tx.now,
    )


def add_segment(tx: Transaction, window: WindowId, part: Stretch) -> None:
    """Let a window read a stretch."""
    tx.run("add_segment", window=window, start=part.start, source=part.source, low=part.low, high=part.high)
