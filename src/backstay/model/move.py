"""A move: a whole store that goes from one database to another, and what is told of it."""

from typing import Literal

import msgspec

MoveStep = Literal["copying", "checking", "indexing"]


class MoveProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a move has got with one table: so many rows of so many."""

    step: MoveStep
    table: str
    rows: int
    total: int


class MovedTable(msgspec.Struct, frozen=True, kw_only=True):
    """One table that was found the same in both places: how many rows, and the SHA-256 of them in order."""

    name: str
    rows: int
    hash: str


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A move that is finished. Without tables: it had been finished before."""

    id: str
    source: str
    target: str
    tables: tuple[MovedTable, ...] = ()
