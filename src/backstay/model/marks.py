"""Marks: an owner's draft in a session, and how far they have read."""

import msgspec


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """The private state of an owner in a session: the draft, and the last event that was read."""

    draft: str = ""
    read_to: int = 0
