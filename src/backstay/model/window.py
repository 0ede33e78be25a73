"""A window: what the model reads. Windows are never changed, only followed by others; together they are the lineage."""

from typing import Literal

import msgspec

from backstay.model.ids import SessionId, WindowId

WindowReason = Literal["first", "undo", "retry", "edit", "fork", "compaction"]


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """One context window and where it came from.

    The first `start` messages are shared with earlier windows (or summarise them); what follows was said here.
    `event` is the number of the event that tells of its opening.
    """

    id: WindowId
    session: SessionId
    parent: WindowId | None
    reason: WindowReason
    start: int
    event: int
    at: int
    behind: WindowId | None = None
    behind_until: int | None = None


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """Where undo or redo took the session."""

    window: Window
    revision: int
    context: int
    length: int
