"""Rest: which sessions are not compacted for now, because it failed or did not help."""

from collections import OrderedDict
from collections.abc import Callable

import msgspec

from backstay.model.ids import SessionId

_REMEMBERED = 10_000
_LONGEST = 3_600.0
_MOST_DOUBLINGS = 64
# A session that compaction could not make short enough is tried again when it has grown by this much.
_GROWN = 1.25


class _Weariness(msgspec.Struct):
    failures: int = 0
    until: float = 0.0
    size: float = 0.0


class Rest:
    """Remembers the latest few thousand sessions that gave trouble, so that nothing is tried over and over."""

    def __init__(self, pause: float, now: Callable[[], float]) -> None:
        self._pause, self._now = pause, now
        self._weary: OrderedDict[SessionId, _Weariness] = OrderedDict()

    def over(self, session: SessionId, size: float) -> bool:
        """Whether a session of this size may be compacted now."""
        weary = self._weary.get(session)
        return weary is None or (self._now() >= weary.until and size >= weary.size * _GROWN)

    def failed(self, session: SessionId) -> None:
        """Its compaction failed: wait, twice as long each time."""
        weary = self._remember(session)
        weary.until = self._now() + min(self._pause * 2**weary.failures, _LONGEST)
        weary.failures = min(weary.failures + 1, _MOST_DOUBLINGS)

    def still_long(self, session: SessionId, size: float) -> None:
        """Its compaction did not make it short enough: wait until it has grown."""
        weary = self._remember(session)
        weary.failures, weary.until, weary.size = 0, 0.0, size

    def helped(self, session: SessionId) -> None:
        """Its compaction did what it should."""
        self._weary.pop(session, None)

    def _remember(self, session: SessionId) -> _Weariness:
        weary = self._weary.setdefault(session, _Weariness())
        self._weary.move_to_end(session)
        while len(self._weary) > _REMEMBERED:
            self._weary.popitem(last=False)
        return weary
