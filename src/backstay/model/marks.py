"""Marks: a person's unfinished message in a session, and how far they have read."""

import msgspec


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """What an owner left in a session. Nobody else's view of it changes."""

    draft: str = ""
    read_to: int = 0
