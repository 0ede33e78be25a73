"""The `synchronous` setting of every SQLite connection that a peer opens. Standard library only.

A watched worker puts a function of its own in front of `sqlite3.connect`, so no private attribute of a peer is touched.
Watching costs time: a watched worker is never timed.
"""

import re
import sqlite3  # noqa: TID251  # a worker of a peer holds no other SQLite library
from functools import partial
from typing import Any

LEVELS = {"0": "OFF", "1": "NORMAL", "2": "FULL", "3": "EXTRA"}
# The level of each connection, by its number.
_levels: dict[int, str] = {}
_PRAGMA = re.compile(r"\s*PRAGMA\s+(?:\w+\.)?synchronous\s*[=(]\s*(\w+)", re.IGNORECASE)


def watch() -> None:
    """Note the level of each connection from now on: its default, or the last statement that changed it."""
    connect = sqlite3.connect

    def watched(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        number = len(_levels)
        (level,) = sqlite3.Connection.execute(connection, "PRAGMA synchronous").fetchone()
        _levels[number] = LEVELS[str(level)]
        connection.set_trace_callback(partial(_note, number))
        return connection

    # SQLAlchemy finds the function in the inner module.
    for module in (sqlite3, sqlite3.dbapi2):
        module.connect = watched  # type: ignore[attr-defined]  # the same call, with a note


def levels_seen() -> list[str]:
    """The levels of all connections so far, each once."""
    return sorted(set(_levels.values()))


def _note(number: int, statement: str) -> None:
    found = _PRAGMA.match(statement)
    if found:
        level = found[1].upper()
        _levels[number] = LEVELS.get(level, level)
