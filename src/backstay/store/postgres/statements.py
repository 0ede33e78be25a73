"""Named SQL for psycopg: shared statements, PostgreSQL's own, and those that also lock."""

import re
from importlib.resources import files
from typing import NamedTuple

from backstay.store.queries import load, shared

# The tables that a statement reads or writes, and some names that are not tables.
_TABLE = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE) (\w+)")
_PARAMETER = re.compile(r"(?<!:):([a-z]\w*)")


class NumberedText(NamedTuple):
    """The text of a statement with numbered parameters, and the name of each of them."""

    text: bytes
    names: tuple[str, ...]


class Statement(NamedTuple):
    """A named statement.

    `before` takes a lock that must be held before `main` reads. `guarded` fails unless it changes a row.
    """

    before: NumberedText | None
    main: NumberedText
    guarded: NumberedText
    writes: bool
    horizon: bool
    tables: frozenset[str]


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
    return Statement(
        before=_numbered(before) if before else None,
        main=_numbered(main),
        # A division by zero is an error that the server itself raises, so it also stops a COMMIT that was sent along.
        guarded=_numbered(f"WITH changed AS ({main} RETURNING 1) SELECT 1 / count(*) FROM changed"),  # noqa: S608
        writes=not main.startswith(("SELECT", "WITH")),
        horizon=":horizon" in main,
        tables=frozenset(_TABLE.findall(main)),
    )


def _numbered(text: str) -> NumberedText:
    names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    return NumberedText(_PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", text).encode(), names)
