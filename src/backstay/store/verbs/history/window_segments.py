"""Windows as lists of segments, so that undo, fork and compaction copy no messages.

A window reads the first messages of its base, if it has one, then its segments. A segment refers to messages in the
window where they were written, so reading a window is a few range scans, however often it was cut. A window that would
get more than `MOST` segments takes the window that it was cut from as its base and starts a new list.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from backstay.errors import CorruptRecord
from backstay.model.ids import MessageId, SessionId, TurnId, WindowId, WorkerId
from backstay.model.window import Window, WindowReason
from backstay.store.engine import Transaction
from backstay.store.rows import Rows, value, values

END = 1 << 62
MOST = 64
# Most turns have fewer messages than this: one statement finds where the last one begins.
_FEW = 8


class WindowSegment(NamedTuple):
    """Messages `low` to `high` (not included) of `source`, which a window reads from its position `start` on."""

    start: int
    source: WindowId
    low: int
    high: int

    def between(self, low: int, high: int) -> "WindowSegment | None":
        """The part of the segment between two positions of the window; None if that is empty."""
        ahead = max(low - self.start, 0)
        first, last = self.low + ahead, min(self.high, self.low + high - self.start)
        return WindowSegment(self.start + ahead, self.source, first, last) if first < last else None


class Position(NamedTuple):
    """A position in a window: before the message with this number."""

    window: WindowId
    position: int


class Bases(NamedTuple):
    """The window that this one begins with, and the window that its summary replaces; each up to a position."""

    base: WindowId | None
    base_until: int | None
    summarises: WindowId | None
    summarises_until: int | None


class Layout(NamedTuple):
    """The parts of a window: its bases, and its own segments in reading order."""

    window: WindowId
    bases: Bases
    own: list[WindowSegment]

    def before(self, until: int) -> list[WindowSegment]:
        """The own segments, as far as they are among the first `until` messages."""
        parts = (segment.between(0, until) for segment in self.own)
        return [part for part in parts if part is not None]


class _LayoutRow(msgspec.Struct, gc=False):
    """The bases of a window, and one of its segments. Without segments, the last four are NULL."""

    base: WindowId | None
    base_until: int | None
    summarises: WindowId | None
    summarises_until: int | None
    start: int | None
    source: WindowId
    low: int
    high: int


class _CurrentLayoutRow(_LayoutRow):
    """The same for the current window of a session, with its length, and the holder of the session."""

    window: WindowId
    length: int
    holder: WorkerId | None


class CurrentWindow(NamedTuple):
    """The current window of a session, its length, and the holder of the session."""

    layout: Layout
    length: int
    holder: WorkerId | None


class Origin(NamedTuple):
    """Where a message was written: its window, its position there, and its turn."""

    window: WindowId
    position: int
    turn: TurnId | None


class FoundTurn(NamedTuple):
    """A turn, the position before it, and whether only a summary precedes that."""

    turn: TurnId
    location: Position
    at_edge: bool


class _MessageOfTurn(NamedTuple):
    """The position and the turn of a message that has one."""

    position: int
    turn: TurnId


class _MessageOfOther(NamedTuple):
    """The position of a message, and its turn if it has one."""

    position: int
    turn: TurnId | None


LINEAGE = Rows("lineage", Window)
WINDOW = Rows("window", Window)
_LAYOUT = Rows("layout", _LayoutRow)
_CURRENT_LAYOUT = Rows("current_layout", _CurrentLayoutRow)
_BASES = Rows("base_of", Bases)
_ORIGIN = Rows("message_origin", Origin)
_TURNS_BACK = Rows("turns_back", _MessageOfOther)
_LAST_WITH_TURN = Rows("last_with_turn", _MessageOfTurn)
_OTHER_TURN_BEFORE = Rows("other_turn_before", _MessageOfOther)


def get(tx: Transaction, window: WindowId) -> Window:
    """Read a window that must exist. Raises `CorruptRecord` if it does not."""
    found = WINDOW.one(tx, window=window)
    if found is None:
        raise CorruptRecord(window, "is missing")
    return found


def origin_of(tx: Transaction, message: MessageId) -> Origin | None:
    """Where a message was written; None if there is no such message."""
    return _ORIGIN.one(tx, message=message)


def layout_of(tx: Transaction, window: WindowId) -> Layout:
    """Read the parts of a window that must exist. Raises `CorruptRecord` if it does not."""
    rows = _LAYOUT.all(tx, window=window)
    if not rows:
        raise CorruptRecord(window, "is missing")
    return _layout(window, rows)


def current_window(tx: Transaction, session: SessionId, owner: str) -> CurrentWindow | None:
    """Read the current window of a session. None: no such session of this owner."""
    rows = _CURRENT_LAYOUT.all(tx, session=session, owner=owner)
    if not rows:
        return None
    return CurrentWindow(_layout(rows[0].window, rows), rows[0].length, rows[0].holder)


def _layout(window: WindowId, rows: Sequence[_LayoutRow]) -> Layout:
    first = rows[0]
    bases = Bases(first.base, first.base_until, first.summarises, first.summarises_until)
    own = [WindowSegment(row.start, row.source, row.low, row.high) for row in rows if row.start is not None]
    return Layout(window, bases, own)


def segments(tx: Transaction, window: WindowId, until: int = END, layout: Layout | None = None) -> list[WindowSegment]:
    """The segments of the first `until` messages of a window, in reading order. Pass its layout if you have it."""
    found: list[WindowSegment] = []
    # From the end to the beginning: each base contributes what stands before the segments found so far.
    while True:
        here = layout if layout is not None and layout.window == window else layout_of(tx, window)
        found[:0] = here.before(until)
        if here.bases.base is None or here.bases.base_until is None:
            return found
        window, until = here.bases.base, min(until, here.bases.base_until)


def length(tx: Transaction, window: WindowId) -> int:
    """The number of messages of a window."""
    return max(end_of(tx, window), get(tx, window).start)


def end_of(tx: Transaction, window: WindowId) -> int:
    """The position after the last message that was written in the window itself; 0 if none was."""
    end: int | None = value(tx, "end_of_window", window=window)
    return end or 0


class Opening(NamedTuple):
    """A window that is about to be opened: its session, the number of its event, its parent, and the reason."""

    session: SessionId
    event: int
    parent: WindowId | None
    reason: WindowReason


def open_first(tx: Transaction, window: WindowId, opening: Opening) -> None:
    """Open the empty window of a new session."""
    _add(tx, window, opening, start=0, bases=Bases(None, None, None, None))
    add_segment(tx, window, WindowSegment(0, window, 0, END))


def open_cut(
    tx: Transaction, window: WindowId, opening: Opening, location: Position, layout: Layout | None = None
) -> Window:
    """Open a window that reads everything before a position, and continues differently."""
    bases, shared = _shared_before(tx, location, layout)
    # The window first, then its segments, in one transaction: a crash leaves both or neither.
    opened = _add(tx, window, opening, start=location.position, bases=bases)
    for segment in shared:
        add_segment(tx, window, segment)
    # The own segment is open: later messages need no further segment.
    add_segment(tx, window, WindowSegment(location.position, window, location.position, END))
    return opened


def open_without(
    tx: Transaction, window: WindowId, opening: Opening, location: Position, *, after: range, replaced: bool
) -> int:
    """Open a window without the message at this position; with `replaced`, it has its own there. Returns its start.

    `after` are the positions of the messages that follow it in the window that is cut.
    """
    bases, shared = _shared_before(tx, location)
    follows = location.position + replaced
    # If nothing follows, the replacement is the first own message of the window, so the window starts before it.
    start = follows + len(after) if after else location.position
    _add(tx, window, opening, start=start, bases=bases)
    for segment in shared:
        add_segment(tx, window, segment)
    if replaced and after:
        add_segment(tx, window, WindowSegment(location.position, window, location.position, follows))
    for segment in segments(tx, location.window, after.stop) if after else ():
        part = segment.between(after.start, after.stop)
        if part is not None:
            add_segment(tx, window, part._replace(start=part.start - after.start + follows))
    add_segment(tx, window, WindowSegment(start, window, start, END))
    return start


def open_compacted(tx: Transaction, window: WindowId, opening: Opening, *, kept: range, summaries: int) -> int:
    """Open a window for the summaries, followed by the kept messages of its parent. Returns its start."""
    parent = opening.parent or WindowId("")
    start = summaries + len(kept)
    _add(tx, window, opening, start=start, bases=Bases(None, None, parent, kept.start))
    add_segment(tx, window, WindowSegment(0, window, 0, summaries))
    # The kept messages are read where they were written, through any base of the parent: nothing is copied.
    for segment in segments(tx, parent, kept.stop):
        part = segment.between(kept.start, kept.stop)
        if part is not None:
            add_segment(tx, window, part._replace(start=part.start - kept.start + summaries))
    add_segment(tx, window, WindowSegment(start, window, start, END))
    return start


def locate(tx: Transaction, window: WindowId, message: MessageId) -> Position | None:
    """The position of a message: in this window, or in a window that its summary replaces. None if in neither."""
    origin = origin_of(tx, message)
    if origin is None:
        return None
    here: WindowId | None = window
    until = END
    while here is not None:
        for part in segments(tx, here, until):
            if part.source == origin.window and part.low <= origin.position < part.high:
                return Position(here, part.start + origin.position - part.low)
        # Not in this window: look in the messages that its summary replaces.
        bases = bases_of(tx, here)
        here, until = bases.summarises, bases.summarises_until or 0
    return None


def is_summarised_by(tx: Transaction, window: WindowId, other: WindowId) -> bool:
    """Whether the summary of this window, or of a window that it replaces, replaces the other."""
    here: WindowId | None = window
    while here is not None and here != other:
        here = bases_of(tx, here).summarises
    return here is not None


def end_of_turn(tx: Transaction, location: Position, turn: TurnId) -> Position:
    """The position after the last message of a turn that has a message at this position."""
    for part in segments(tx, location.window):
        rest = part.between(location.position, END)
        if rest is None:
            continue
        other: int | None = value(tx, "other_turn_after", window=rest.source, low=rest.low, high=rest.high, turn=turn)
        if other is not None:
            return Position(location.window, rest.start + other - rest.low)
    return Position(location.window, length(tx, location.window))


def last_turn(tx: Transaction, window: WindowId, until: int = END, layout: Layout | None = None) -> FoundTurn | None:
    """The last turn among the first `until` messages of a window, and the position before it.

    A turn that a compaction cut in two begins in the summarised window. So does the last turn if this window holds only
    a summary.
    """
    latest: FoundTurn | None = None
    here: WindowId | None = window
    while here is not None:
        found = _last_turn_here(tx, here, segments(tx, here, until, layout))
        if found is not None:
            if latest is not None and found.turn != latest.turn:
                return latest
            latest = found
            if not found.at_edge:
                return latest
        bases = bases_of(tx, here)
        here, until = bases.summarises, bases.summarises_until or 0
    return latest


def reading(tx: Transaction, window: WindowId) -> list[WindowSegment]:
    """Every segment that can be reached from a window: those that it reads, and those that its summaries replace."""
    found: list[WindowSegment] = []
    here: WindowId | None = window
    until = END
    while here is not None:
        found += segments(tx, here, until)
        bases = bases_of(tx, here)
        here, until = bases.summarises, bases.summarises_until or 0
    return found


def own_segments(tx: Transaction, window: WindowId, until: int) -> list[WindowSegment]:
    """The own segments of a window, without its base, as far as they are among its first `until` messages."""
    return layout_of(tx, window).before(until)


def rests_on(tx: Transaction, window: WindowId, until: int) -> list[tuple[WindowId, int]]:
    """The other windows that the first `until` messages of a window need: its base, and the summarised window.

    Each comes with the number of messages that are needed of it.
    """
    bases = bases_of(tx, window)
    found = []
    if bases.base is not None and bases.base_until is not None:
        found.append((bases.base, min(bases.base_until, until)))
    if bases.summarises is not None and bases.summarises_until is not None:
        found.append((bases.summarises, bases.summarises_until))
    return found


class Needed:
    """The messages that some sessions need of windows that are about to be deleted, or not exported.

    `read` has the number of messages that are read through a window, `sources` the segments that refer to its messages.
    """

    def __init__(self, tx: Transaction, leaving: set[WindowId], sessions: Iterable[SessionId]) -> None:
        self.read: dict[WindowId, int] = {}
        self.sources: dict[WindowId, list[WindowSegment]] = {}
        self._tx, self._leaving = tx, leaving
        self._seen: dict[WindowId, int] = {}
        for session in sessions:
            for window in values(tx, "windows_of", session=session):
                self._visit(window)

    def _visit(self, window: WindowId) -> None:
        """Follow a window to everything that it reads, and that its summaries replace."""
        stack = [(window, END)]
        while stack:
            here, until = stack.pop()
            # A window that was visited with as many messages needs nothing more.
            if until <= self._seen.get(here, 0):
                continue
            self._seen[here] = until
            if here in self._leaving:
                self.read[here] = until
            for part in own_segments(self._tx, here, until):
                if part.source in self._leaving:
                    self.sources.setdefault(part.source, []).append(part)
            stack += rests_on(self._tx, here, until)


def _last_turn_here(tx: Transaction, window: WindowId, parts: list[WindowSegment]) -> FoundTurn | None:
    turn: TurnId | None = None
    index = 0
    for part in reversed(parts):
        turn, other = _turn_before(tx, part, turn)
        if turn is not None and other is not None:
            location = Position(window, part.start + other.position + 1 - part.low)
            # A message without a turn is a summary: the turn may begin in the window that it replaces.
            return FoundTurn(turn, location, at_edge=other.turn is None)
        # The whole segment is of this turn, so the turn begins here or in an earlier segment.
        index = part.start if turn is not None else index
    return None if turn is None else FoundTurn(turn, Position(window, index), at_edge=True)


def _turn_before(
    tx: Transaction, part: WindowSegment, turn: TurnId | None
) -> tuple[TurnId | None, "_MessageOfOther | None"]:
    """The last turn of a segment, unless it is given, and the last message before it that belongs to another."""
    high = part.high
    tail = _TURNS_BACK.all(tx, window=part.source, low=part.low, high=high, limit=_FEW)
    for message in tail:
        if turn is not None and message.turn != turn:
            return turn, message
        turn, high = turn or message.turn, message.position
    if len(tail) < _FEW:
        return turn, None
    if turn is None:
        last = _LAST_WITH_TURN.one(tx, window=part.source, low=part.low, high=high)
        if last is None:
            return None, None
        high, turn = last.position, last.turn
    return turn, _OTHER_TURN_BEFORE.one(tx, window=part.source, low=part.low, high=high, turn=turn)


def _shared_before(
    tx: Transaction, location: Position, layout: Layout | None = None
) -> tuple[Bases, list[WindowSegment]]:
    """The bases and segments of a window that shares everything before a position."""
    if layout is None or layout.window != location.window:
        layout = layout_of(tx, location.window)
    bases, parts = layout.bases, layout.before(location.position)
    # A window that shares nothing replaces nothing either: its first message would follow no summary.
    summarises = (bases.summarises, bases.summarises_until) if location.position else (None, None)
    # The list stays short: a long one is read through the cut window, as one base.
    if len(parts) >= MOST:
        return Bases(location.window, location.position, *summarises), []
    if bases.base is None or bases.base_until is None or not location.position:
        return Bases(None, None, *summarises), parts
    return Bases(bases.base, min(bases.base_until, location.position), *summarises), parts


def bases_of(tx: Transaction, window: WindowId) -> Bases:
    """The base and the summarised window of a window that must exist. Raises `CorruptRecord` if it does not."""
    bases = _BASES.one(tx, window=window)
    if bases is None:
        raise CorruptRecord(window, "is missing")
    return bases


def _add(tx: Transaction, window: WindowId, opening: Opening, *, start: int, bases: Bases) -> Window:
    tx.run(
        "add_window",
        window=window,
        session=opening.session,
        parent=opening.parent,
        reason=opening.reason,
        start=start,
        base=bases.base,
        base_until=bases.base_until,
        summarises=bases.summarises,
        summarises_until=bases.summarises_until,
        event=opening.event,
        now=tx.now,
    )
    return Window(
        id=window,
        session=opening.session,
        parent=opening.parent,
        reason=opening.reason,
        start=start,
        event=opening.event,
        at=tx.now,
        summarises=bases.summarises,
        summarises_until=bases.summarises_until,
    )


def add_segment(tx: Transaction, window: WindowId, part: WindowSegment) -> None:
    """Append a segment to a window."""
    tx.run("add_segment", window=window, start=part.start, source=part.source, low=part.low, high=part.high)
