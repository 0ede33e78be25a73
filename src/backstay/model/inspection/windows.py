"""The windows of a document: whether they can be read, and rest on nothing that is not there."""

from collections.abc import Iterable
from itertools import pairwise

from backstay.model.codec import check_body, encode_parts
from backstay.model.content import Attachment, Part, Text, Thought, check_role
from backstay.model.export import Beginning, Export, ExportedWindow, Segment
from backstay.model.ids import SessionId, WindowId, check_turn_id, check_window_id
from backstay.model.inspection.complaint import at, require
from backstay.model.inspection.ranges import Range, cover, joined_ranges, runs
from backstay.model.limits import Limits
from backstay.model.message import Message

_MOST = 1 << 52


def check_windows(export: Export, limits: Limits) -> None:
    """Raise unless every window reads messages of the document, and every message is read."""
    inspection = _Inspection(export, limits)
    for index, window in enumerate(export.windows):
        inspection.check(window, f"$.windows[{index}]")
    inspection.check_needed()


class _Inspection:
    def __init__(self, export: Export, limits: Limits) -> None:
        self._export, self._limits = export, limits
        self._turns = {turn.id for turn in export.turns}
        self._here = {window.id: window for window in export.windows}
        self._said = {window.id: runs(window.messages) for window in export.windows}
        self._lengths: dict[WindowId, int] = {}
        self._compacted: set[WindowId] = set()
        self._latest: dict[SessionId, tuple[int, WindowId]] = {}

    def check(self, window: ExportedWindow, place: str) -> None:
        """In the order of the document: what a window rests on stands before it."""
        whose = self._own(window) or window.session in self._export.ancestors
        require(whose, f"{place}.session", "is neither the session nor an ancestor")
        self._check_order(window, place)
        self._check_roots(window, place)
        self._check_messages(window, place)
        position = 0 if window.base is None else window.base.until
        for index, segment in enumerate(window.segments):
            here = f"{place}.segments[{index}]"
            require(segment.start == position, here, f"begins at {segment.start}, not at {position}")
            position = self._check_segment(window, segment, here)
        self._lengths[window.id] = position
        self._check_parent(window, place)
        if self._own(window):
            last = window.segments[-1] if window.segments else None
            require(last is not None and last.high is None, f"{place}.segments", "do not end with the window's own")

    def check_needed(self) -> None:
        """Nothing is here that the session does not rest on: nobody would ever read or delete it."""
        read = self._read()
        needed: dict[WindowId, list[Range]] = {}
        for window in self._export.windows:
            for segment in window.segments if window.id in read else ():
                needed.setdefault(segment.source, []).append((segment.low, self._end(segment)))
        for index, window in enumerate(self._export.windows):
            place, parts = f"$.windows[{index}]", joined_ranges(needed.get(window.id, []))
            lies = bool(parts) and not (window.segments or window.base or window.behind)
            require(window.id in read or lies, place, "is not needed")
            for low, high in self._said[window.id]:
                require(cover(parts, low, high), f"{place}.messages", "are more than the session can reach")

    def _read(self) -> set[WindowId]:
        """The windows that the session reads as such: its own, and what these begin with or stand for."""
        read = {window.id for window in self._export.windows if self._own(window)}
        for window in reversed(self._export.windows):
            if window.id in read:
                read.update(root.window for root in _roots(window))
        return read

    def _own(self, window: ExportedWindow) -> bool:
        return window.session == self._export.session.id

    def _check_order(self, window: ExportedWindow, place: str) -> None:
        """A session's windows stand in the order of its story, in which they will be exported again."""
        opened = (window.event, window.id)
        require(self._latest.get(window.session, opened) <= opened, place, "stands behind one that came later")
        self._latest[window.session] = opened

    def _check_roots(self, window: ExportedWindow, place: str) -> None:
        for root in _roots(window):
            length = self._lengths.get(root.window, -1)
            require(length >= 0, place, f"rests on {root.window}, which does not stand before it")
            require(root.until <= length, place, f"needs {root.until} messages of {root.window}, which has {length}")

    def _check_segment(self, window: ExportedWindow, segment: Segment, place: str) -> int:
        """A segment leads to messages that are here; the position after it."""
        require(segment.source in self._said, place, f"reads {segment.source}, which is not in the document")
        if segment.high is None:
            last = self._own(window) and segment is window.segments[-1] and segment.source == window.id
            require(last and segment.start == segment.low == window.start, place, "is open")
            return self._end(segment)
        require(segment.low < segment.high, place, "is empty")
        whole = cover(self._said[segment.source], segment.low, segment.high)
        require(whole, place, f"reads messages that {segment.source} does not have")
        return segment.start + segment.high - segment.low

    def _end(self, segment: Segment) -> int:
        """Where a segment ends. An open one ends with the run of messages that begins where it does."""
        if segment.high is not None:
            return segment.high
        return next((high for low, high in self._said[segment.source] if low <= segment.low < high), segment.low)

    def _check_parent(self, window: ExportedWindow, place: str) -> None:
        """A window came from another of its session; a fork's first came from one that need not be here."""
        parent = None if window.parent is None else self._here.get(window.parent)
        if not self._own(window):
            require(window.parent is None or parent is not None, f"{place}.parent", "is not in the document")
        elif window.reason == "first":
            require(window.parent is None, f"{place}.parent", "is before the first window")
        elif window.reason == "fork":
            with at(f"{place}.parent"):
                check_window_id(window.parent or "")
        else:
            require(parent is not None and self._own(parent), f"{place}.parent", "is no window of the session")
        if window.reason == "compaction" and window.parent is not None:
            require(window.parent not in self._compacted, place, f"compacts {window.parent} a second time")
            self._compacted.add(window.parent)

    def _check_messages(self, window: ExportedWindow, place: str) -> None:
        ordered = all(one.position < other.position for one, other in pairwise(window.messages))
        require(ordered, f"{place}.messages", "are not in order")
        for index, said in enumerate(window.messages):
            here = f"{place}.messages[{index}]"
            require(0 <= said.position <= _MOST and 0 <= said.at <= _MOST, here, "has no such position or time")
            whose = said.turn is None or (said.turn in self._turns) == self._own(window)
            require(whose, here, "is of a turn of another session")
            with at(here):
                self._check_message(said)

    def _check_message(self, said: Message) -> None:
        if said.turn is not None:
            check_turn_id(said.turn)
        if said.role in ("user", "assistant", "tool"):
            check_role(said.role, said.parts)
        if said.role in ("assistant", "tool"):
            self._check_answer(said.parts)
        else:
            encode_parts(said.parts, self._limits)

    def _check_answer(self, parts: Iterable[Part]) -> None:
        """What an agent said may have any length; each of its calls and results has its limits."""
        for part in parts:
            if not isinstance(part, Text | Thought | Attachment):
                check_body(part, self._limits)


def _roots(window: ExportedWindow) -> list[Beginning]:
    return [root for root in (window.base, window.behind) if root is not None]
