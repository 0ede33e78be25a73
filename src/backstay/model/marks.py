"""Marks: an owner's draft in a session, and how far they have read."""

import msgspec


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """The private state of an owner in a session.

    Attributes:
        draft: The draft; empty if there is none.
        read_to: The number of the last event that was marked as read.
    """

    draft: str = ""
    read_to: int = 0
