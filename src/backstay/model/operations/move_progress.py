"""A move of a whole store to another database: its progress and its result."""

from typing import Literal

import msgspec

MoveStep = Literal["copying", "checking", "indexing"]


class MoveProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a move in one table: `rows` of `total`."""

    step: MoveStep
    table: str
    rows: int
    total: int


class MovedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that is identical in both databases: its number of rows, and the SHA-256 of the rows in order."""

    name: str
    rows: int
    hash: str


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A finished move. Without tables, it had been finished before."""

    id: str
    source: str
    target: str
    tables: tuple[MovedTable, ...] = ()
