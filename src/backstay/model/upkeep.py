"""What an operator learns of a whole database: its schema, its room, and what is wrong with it."""

from collections.abc import Callable
from typing import Literal

import msgspec

# Told about a step: what is being done, how much of it is done, and how much there is.
Tell = Callable[[str, int, int], None]
Level = Literal["fine", "note", "wrong"]
Mend = Literal["permissions", "reap", "index", "rebuild-index", "workers", "migrate"]


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """The schema that a database has, none at all being 0; the newest; and the steps from one to the other."""

    place: str
    found: int
    newest: int
    missing: tuple[str, ...] = ()


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """How much a database takes, and how much of that holds nothing, in bytes."""

    place: str
    size: int
    unused: int


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that was made."""

    source: str
    target: str
    size: int


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at. What is wrong says what to do; `mend` is what can be done safely."""

    about: str
    level: Level
    said: str
    advice: str = ""
    mend: Mend | None = None


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """Records that could not be read: of which table, from which key to which, and why."""

    table: str
    first: str
    last: str
    problem: str


class Rescued(msgspec.Struct, frozen=True, kw_only=True):
    """One session that was saved: in which file, and if it is not whole, why not."""

    session: str
    owner: str
    file: str
    messages: int
    whole: bool
    problem: str = ""


class Rescue(msgspec.Struct, frozen=True, kw_only=True):
    """All that was saved from a damaged file, and every record that was not."""

    source: str
    folder: str
    sessions: tuple[Rescued, ...]
    loose: int
    unreadable: tuple[Unreadable, ...]
