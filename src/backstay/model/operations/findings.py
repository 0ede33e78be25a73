"""Results of operations on a whole database: schema, space, backup, checkup and rescue."""

from collections.abc import Callable
from typing import Literal

import msgspec

# Called for each step: its name, the amount that is done, and the total.
ProgressCallback = Callable[[str, int, int], None]


def quiet(what: str, done: int, total: int) -> None:
    """Reports nothing."""


Level = Literal["fine", "note", "wrong"]
Repair = Literal["permissions", "reap", "index", "rebuild-index", "workers", "imports", "migrate"]


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """The schema version of a database (0: it has none), the newest version, and the missing migrations."""

    location: str
    found: int
    newest: int
    missing: tuple[str, ...] = ()


class SpaceUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a database, and its unused part, in bytes."""

    location: str
    size: int
    unused: int


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """A finished backup."""

    source: str
    target: str
    size: int


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a database file; `active_at` is None if it has no session."""

    location: str
    sessions: int
    active_at: int | None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One result of a checkup. A problem has a hint; `repair` names the one that can be done safely."""

    about: str
    level: Level
    detail: str
    hint: str = ""
    repair: Repair | None = None


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """Records that could not be read: their table, the first and last key, and the reason."""

    table: str
    first: str
    last: str
    problem: str


class Rescued(msgspec.Struct, frozen=True, kw_only=True):
    """A saved session: its file, and if it is not complete, the reason."""

    session: str
    owner: str
    file: str
    messages: int
    whole: bool
    problem: str = ""


class Rescue(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was saved from a damaged file, and every record that was not."""

    source: str
    folder: str
    sessions: tuple[Rescued, ...]
    loose: int
    unreadable: tuple[Unreadable, ...]
