"""Named SQL for psycopg: shared statements, PostgreSQL's own, and those that also lock."""

import re
from importlib.resources import files
from typing import NamedTuple

from backstay.store.queries import load, shared

_PARAMETER = re.compile(r"(?<!:):([a-z]\w*)")


class Statement(NamedTuple):
    """A named statement. `before` takes a lock that must be held before `text` reads."""

    before: str | None
    text: str
    writes: bool
    horizon: bool


Statements = dict[str, Statement]


def reading() -> Statements:
    """The statements of a transaction that only reads."""
    return _statements("sql")


def writing() -> Statements:
    """The statements of a transaction that writes: some of them lock the rows that they read."""
    return _statements("sql", "locking")


def _statements(*overlays: str) -> Statements:
    here = files("backstay.store.postgres")
    found = load(shared(), *(here.joinpath(overlay) for overlay in overlays))
    return {name: _statement(text) for name, text in found.items()}


def _statement(text: str) -> Statement:
    before, _, main = text.rpartition("; ")
    translated = _PARAMETER.sub(r"%(\1)s", main.replace("%", "%%"))
    return Statement(
        before=_PARAMETER.sub(r"%(\1)s", before) or None,
        text=translated,
        writes=not main.startswith(("SELECT", "WITH")),
        horizon=":horizon" in main,
    )
