"""The mover copies and compares tables. It has no state of its own, so it can continue after any interruption."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import zip_longest

import msgspec

from backstay.errors import CorruptRecord
from backstay.model.operations.move_progress import MovedTable, MoveProgress, MoveStep
from backstay.store.engine import Row
from backstay.store.move.moved_tables import TABLES, Table
from backstay.store.move.site import Site, occupied

Progress = Callable[[MoveProgress], None]


class Mover:
    """Copies everything from one database to another. The source accepts no writes meanwhile, so nothing is missed."""

    def __init__(self, source: Site, target: Site, progress: Progress) -> None:
        self._source, self._target, self._progress = source, target, progress

    def refuse_occupied(self) -> None:
        """Raise unless the target is an empty store."""
        for table in TABLES:
            if self._target.last(table) is not None:
                raise occupied(self._target.location, table.name)

    def copy(self) -> None:
        """Copy the rows that have not arrived yet. The last key at the target shows how far a table has been copied."""
        for table in TABLES:
            report = self._reporter("copying", table)
            after, done = self._target.last(table), self._target.count(table)
            for rows in _steps(self._source, table, after):
                self._target.add(table, table.without_later(rows))
                done += len(rows)
                report(done)
            if table.later:
                for rows in _steps(self._source, table):
                    self._target.amend(table, table.amendments(rows))
            report(done)

    def compare(self) -> tuple[MovedTable, ...]:
        """Read every row at both ends.

        Raises:
            CorruptRecord: Names the first row that differs.
        """
        return tuple(self._compare(table) for table in TABLES)

    def hosts(self) -> dict[str, str]:
        """The names of machines at the target: this machine keeps the name that it had at the source.

        Names of other machines are kept only between engines that name machines in the same way.
        """
        here, there = self._source.machine, self._target.machine
        names = self._source.hosts()
        own = names.get(here, here)
        names = names if here == there else {}
        return {machine: host for machine, host in {**names, there: own}.items() if machine != host}

    def _compare(self, table: Table) -> MovedTable:
        report = self._reporter("checking", table)
        digest, count = sha256(), 0
        nothing: list[Row] = []
        both = zip_longest(_steps(self._source, table), _steps(self._target, table), fillvalue=nothing)
        for source_rows, target_rows in both:
            if source_rows != target_rows:
                raise self._differing(table, source_rows, target_rows)
            for row in source_rows:
                digest.update(msgspec.msgpack.encode(row))
            count += len(source_rows)
            report(count)
        return MovedTable(name=table.name, rows=count, hash=digest.hexdigest())

    def _differing(self, table: Table, source_rows: list[Row], target_rows: list[Row]) -> CorruptRecord:
        here, there = next(pair for pair in zip_longest(source_rows, target_rows) if pair[0] != pair[1])
        key = ", ".join(map(str, table.key_of(here or there)))
        return CorruptRecord(
            f"{table.name} ({key})", f"is not the same in {self._source.location} and {self._target.location}"
        )

    def _reporter(self, step: MoveStep, table: Table) -> Callable[[int], None]:
        total = self._source.count(table)
        return lambda rows: self._progress(MoveProgress(step=step, table=table.name, rows=rows, total=total))


def _steps(site: Site, table: Table, after: Row | None = None) -> Iterator[list[Row]]:
    """The rows after a key, in batches of the table's step."""
    while rows := site.rows(table, after):
        yield rows
        after = table.key_of(rows[-1])
