"""Compaction back-off: sessions that are not compacted for now, because compaction failed or did not help."""

from collections import OrderedDict
from collections.abc import Callable

import msgspec

from backstay.model.ids import SessionId

_REMEMBERED = 10_000
_LONGEST = 3_600.0
_MOST_DOUBLINGS = 64
# A session that is still too long after its compaction is tried again when it has grown by this factor.
_GROWN = 1.25


class _Record(msgspec.Struct):
    failures: int = 0
    until: float = 0.0
    size: float = 0.0


class CompactionBackoff:
    """Remembers the last few thousand sessions with a failed or useless compaction, to delay the next one."""

    def __init__(self, pause: float, now: Callable[[], float]) -> None:
        self._pause, self._now = pause, now
        self._sessions: OrderedDict[SessionId, _Record] = OrderedDict()

    def allows(self, session: SessionId, size: float) -> bool:
        """Whether a session of this size may be compacted now."""
        record = self._sessions.get(session)
        return record is None or (self._now() >= record.until and size >= record.size * _GROWN)

    def failed(self, session: SessionId) -> None:
        """The compaction failed: wait, twice as long each time."""
        record = self._remember(session)
        record.until = self._now() + min(self._pause * 2**record.failures, _LONGEST)
        record.failures = min(record.failures + 1, _MOST_DOUBLINGS)

    def still_long(self, session: SessionId, size: float) -> None:
        """The compaction did not make the session short enough: wait until it has grown."""
        record = self._remember(session)
        record.failures, record.until, record.size = 0, 0.0, size

    def succeeded(self, session: SessionId) -> None:
        """The compaction succeeded: forget earlier failures."""
        self._sessions.pop(session, None)

    def _remember(self, session: SessionId) -> _Record:
        record = self._sessions.setdefault(session, _Record())
        self._sessions.move_to_end(session)
        while len(self._sessions) > _REMEMBERED:
            self._sessions.popitem(last=False)
        return record
