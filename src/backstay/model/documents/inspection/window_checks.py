"""Checks the windows of a document: they can be read, and refer only to its own messages and windows."""

from collections.abc import Iterable

from backstay.model.codec import check_body, encode_parts
from backstay.model.content import Attachment, Part, Text, Thought, check_role
from backstay.model.documents.document import Beginning, ExportedWindow, Segment
from backstay.model.documents.inspection.inspected import Document
from backstay.model.documents.inspection.ranges import Range, cover, extend, joined_ranges
from backstay.model.documents.inspection.requirements import at, require
from backstay.model.ids import SessionId, WindowId, check_message_id, check_turn_id, check_window_id
from backstay.model.limits import Limits
from backstay.model.message import Message

_MOST = 1 << 52


# The positions of each window that have messages in the document.
MessageRanges = dict[WindowId, list[Range]]


def check_windows(document: Document, limits: Limits) -> MessageRanges:
    """Raise unless every window reads messages of the document, and every message is read; returns the positions."""
    inspection = _WindowInspection(document, limits)
    inspection.check_messages()
    for location, window in document.windows:
        inspection.check(window, location)
    inspection.check_needed()
    return inspection.ranges


class _WindowInspection:
    def __init__(self, document: Document, limits: Limits) -> None:
        self._document, self._limits = document, limits
        self._windows = [window for _, window in document.windows]
        self._here = {window.id: window for window in self._windows}
        self.ranges: MessageRanges = {}
        self._lengths: dict[WindowId, int] = {}
        self._compacted: set[WindowId] = set()
        self._latest: dict[SessionId, tuple[int, WindowId]] = {}

    def check_messages(self) -> None:
        """Check each message by itself, and collect their positions."""
        # Segments read messages: a document with more gaps than segments has messages that no window reads.
        most = sum(len(window.segments) for window in self._windows)
        for location, window in self._document.windows:
            self.ranges[window.id] = self._check_messages(window, location, most)

    def check(self, window: ExportedWindow, location: str) -> None:
        """Check one window. Called in the order of the document: windows that it refers to come before it."""
        whose = self._own(window) or window.session in self._document.header.ancestors
        require(whose, f"{location}.session", "is neither the session nor an ancestor")
        self._check_order(window, location)
        self._check_roots(window, location)
        position = 0 if window.base is None else window.base.until
        for index, segment in enumerate(window.segments):
            here = f"{location}.segments[{index}]"
            require(segment.start == position, here, f"begins at {segment.start}, not at {position}")
            position = self._check_segment(window, segment, here)
        self._lengths[window.id] = position
        self._check_parent(window, location)
        if self._own(window):
            last = window.segments[-1] if window.segments else None
            require(last is not None and last.high is None, f"{location}.segments", "do not end with the window's own")

    def check_needed(self) -> None:
        """Check that the session needs everything here: no session would ever read or delete the rest."""
        read = self._read()
        needed: dict[WindowId, list[Range]] = {}
        for window in self._windows:
            for segment in window.segments if window.id in read else ():
                needed.setdefault(segment.source, []).append((segment.low, self._end(segment)))
        for location, window in self._document.windows:
            parts = joined_ranges(needed.get(window.id, []))
            has_rows = bool(parts) and not (window.segments or window.base or window.summarises)
            require(window.id in read or has_rows, location, "is not needed")
            for low, high in self.ranges[window.id]:
                require(cover(parts, low, high), f"{location}.messages", "are more than the session can reach")

    def _read(self) -> set[WindowId]:
        """The windows that the session reads: its own, and those that these begin with or summarise."""
        read = {window.id for window in self._windows if self._own(window)}
        for window in reversed(self._windows):
            if window.id in read:
                read.update(root.window for root in _roots(window))
        return read

    def _own(self, window: ExportedWindow) -> bool:
        return window.session == self._document.header.session.id

    def _check_order(self, window: ExportedWindow, location: str) -> None:
        """Check that a session's windows are in the order of their opening, which is the order of the next export."""
        opened = (window.event, window.id)
        require(self._latest.get(window.session, opened) <= opened, location, "comes after a later one")
        self._latest[window.session] = opened

    def _check_roots(self, window: ExportedWindow, location: str) -> None:
        for root in _roots(window):
            length = self._lengths.get(root.window, -1)
            require(length >= 0, location, f"rests on {root.window}, which does not come before it")
            require(root.until <= length, location, f"needs {root.until} messages of {root.window}, which has {length}")

    def _check_segment(self, window: ExportedWindow, segment: Segment, location: str) -> int:
        """Check that a segment refers to messages in the document; returns the position after it."""
        require(segment.source in self.ranges, location, f"reads {segment.source}, which is not in the document")
        if segment.high is None:
            last = self._own(window) and segment is window.segments[-1] and segment.source == window.id
            require(last and segment.start == segment.low == window.start, location, "is open")
            return self._end(segment)
        require(segment.low < segment.high, location, "is empty")
        whole = cover(self.ranges[segment.source], segment.low, segment.high)
        require(whole, location, f"reads messages that {segment.source} does not have")
        return segment.start + segment.high - segment.low

    def _end(self, segment: Segment) -> int:
        """The end of a segment. An open one ends with the run of messages that starts at its beginning."""
        if segment.high is not None:
            return segment.high
        return next((high for low, high in self.ranges[segment.source] if low <= segment.low < high), segment.low)

    def _check_parent(self, window: ExportedWindow, location: str) -> None:
        """Check that a window's parent is of its session. The parent of a fork's first window need not be here."""
        parent = None if window.parent is None else self._here.get(window.parent)
        if not self._own(window):
            require(window.parent is None or parent is not None, f"{location}.parent", "is not in the document")
        elif window.reason == "first":
            require(window.parent is None, f"{location}.parent", "is before the first window")
        elif window.reason == "fork":
            with at(f"{location}.parent"):
                check_window_id(window.parent or "")
        else:
            require(parent is not None and self._own(parent), f"{location}.parent", "is not a window of the session")
        if window.reason == "compaction" and window.parent is not None:
            require(window.parent not in self._compacted, location, f"compacts {window.parent} a second time")
            self._compacted.add(window.parent)

    def _check_messages(self, window: ExportedWindow, location: str, most: int) -> list[Range]:
        taken: list[Range] = []
        for here, message in self._document.messages(window.id):
            require(
                0 <= message.position <= _MOST and 0 <= message.at <= _MOST, here, "has an invalid position or time"
            )
            require(not taken or taken[-1][1] <= message.position, f"{location}.messages", "are not in order")
            whose = message.turn is None or self._document.has_turn(message.turn) == self._own(window)
            require(whose, here, "belongs to a turn of another session")
            with at(here):
                self._check_message(message)
            extend(taken, message.position, message.position + 1)
            require(len(taken) <= most, f"{location}.messages", "are more than the session can reach")
        return taken

    def _check_message(self, message: Message) -> None:
        check_message_id(message.id)
        if message.turn is not None:
            check_turn_id(message.turn)
        if message.role in ("user", "assistant", "tool"):
            check_role(message.role, message.parts)
        if message.role in ("assistant", "tool"):
            self._check_answer(message.parts)
        else:
            encode_parts(message.parts, self._limits)

    def _check_answer(self, parts: Iterable[Part]) -> None:
        """Check the limits of each call and result. The text of an agent may have any length."""
        for part in parts:
            if not isinstance(part, Text | Thought | Attachment):
                check_body(part, self._limits)


def _roots(window: ExportedWindow) -> list[Beginning]:
    return [root for root in (window.base, window.summarises) if root is not None]
