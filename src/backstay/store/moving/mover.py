"""The mover: copies, compares and hands over. It keeps no state of its own, so it can begin again anywhere."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import zip_longest

import msgspec

from backstay.errors import CorruptRecord
from backstay.model.move import MovedTable, MoveProgress, MoveStep
from backstay.store.engine import Row
from backstay.store.moving.site import Site, occupied
from backstay.store.moving.tables import TABLES, Table

Progress = Callable[[MoveProgress], None]


class Mover:
    """Brings everything from one site to another. The source takes no writes meanwhile, so nothing can be missed."""

    def __init__(self, source: Site, target: Site, progress: Progress) -> None:
        self._source, self._target, self._progress = source, target, progress

    def refuse_occupied(self) -> None:
        """Raise unless the target is an empty store."""
        for table in TABLES:
            if self._target.last(table) is not None:
                raise occupied(self._target.place, table.name)

    def copy(self) -> None:
        """Copy what has not arrived yet. How far a table has got, its last key at the target says."""
        for table in TABLES:
            tell = self._teller("copying", table)
            after, done = self._target.last(table), self._target.count(table)
            for rows in _steps(self._source, table, after):
                self._target.add(table, table.without_later(rows))
                done += len(rows)
                tell(done)
            if table.later:
                for rows in _steps(self._source, table):
                    self._target.amend(table, table.amendments(rows))
            tell(done)

    def compare(self) -> tuple[MovedTable, ...]:
        """Read every row at both ends; `CorruptRecord` names the first that differs."""
        return tuple(self._compare(table) for table in TABLES)

    def hosts(self) -> dict[str, str]:
        """What machines are called at the target: this one is still called what it was called at the source.

        What others are called matters only between engines that name machines alike.
        """
        here, there = self._source.machine, self._target.machine
        names = self._source.hosts()
        own = names.get(here, here)
        names = names if here == there else {}
        return {machine: host for machine, host in {**names, there: own}.items() if machine != host}

    def _compare(self, table: Table) -> MovedTable:
        tell = self._teller("checking", table)
        digest, count = sha256(), 0
        nothing: list[Row] = []
        both = zip_longest(_steps(self._source, table), _steps(self._target, table), fillvalue=nothing)
        for ours, theirs in both:
            if ours != theirs:
                raise self._differing(table, ours, theirs)
            for row in ours:
                digest.update(msgspec.msgpack.encode(row))
            count += len(ours)
            tell(count)
        return MovedTable(name=table.name, rows=count, hash=digest.hexdigest())

    def _differing(self, table: Table, ours: list[Row], theirs: list[Row]) -> CorruptRecord:
        here, there = next(pair for pair in zip_longest(ours, theirs) if pair[0] != pair[1])
        key = ", ".join(map(str, table.key_of(here or there)))
        return CorruptRecord(
            f"{table.name} ({key})", f"is not the same in {self._source.place} and {self._target.place}"
        )

    def _teller(self, step: MoveStep, table: Table) -> Callable[[int], None]:
        total = self._source.count(table)
        return lambda rows: self._progress(MoveProgress(step=step, table=table.name, rows=rows, total=total))


def _steps(site: Site, table: Table, after: Row | None = None) -> Iterator[list[Row]]:
    """The rows after a key, a step at a time."""
    while rows := site.rows(table, after):
        yield rows
        after = table.key_of(rows[-1])
