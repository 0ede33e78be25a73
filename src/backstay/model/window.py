"""A window: the messages that the model reads.

A window is never changed, only succeeded; all windows are the lineage.
"""

from typing import Literal

import msgspec

from backstay.model.ids import SessionId, WindowId

WindowReason = Literal["first", "undo", "retry", "edit", "fork", "compaction"]


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """One context window and its origin.

    Attributes:
        id: The id of the window.
        session: Its session.
        parent: The window that it succeeded; None for the first.
        reason: Why it was opened: "first", "undo", "retry", "edit", "fork" or "compaction".
        start: The number of messages at its beginning that are shared with earlier windows, or summarise them.
        event: The number of the event of its opening.
        at: When it was opened, in milliseconds since 1970 (UTC).
        summarises: For a compaction, the window whose first `summarises_until` messages its summary replaces.
        summarises_until: See `summarises`.
    """

    id: WindowId
    session: SessionId
    parent: WindowId | None
    reason: WindowReason
    start: int
    event: int
    at: int
    summarises: WindowId | None = None
    summarises_until: int | None = None


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """The window of the session after an undo or redo.

    Attributes:
        window: The current window.
        revision: The session's revision.
        context: Its context number.
        length: The number of messages in the window.
    """

    window: Window
    revision: int
    context: int
    length: int
