"""A SQLite file as one end of a move."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import apsw
import msgspec

from backstay.errors import StoreArriving
from backstay.store.engine import Row
from backstay.store.move.moved_tables import TABLES, Table
from backstay.store.move.site import MoveState, State, already_moved, busy, called_off, finished, occupied
from backstay.store.sqlite.connection import APPLICATION_ID, MOVING_ID, open_writer, pragma
from backstay.store.sqlite.engine import MACHINE
from backstay.store.sqlite.faults import MOVED, store_errors
from backstay.store.sqlite.files.file_locks import no_other_writer
from backstay.store.sqlite.migrations import refuse_foreign_file, shipped

T = TypeVar("T")

_WAIT_SECONDS = 30.0
# Every write transaction marks its commit, so a process that cannot do that cannot write.
_BLOCK_WRITES = "CREATE TRIGGER shut BEFORE INSERT ON commits BEGIN SELECT RAISE(ABORT, '{}'); END"
_NOTED = """
SELECT id, state, place FROM moves WHERE instr(',' || ? || ',', ',' || state || ',') ORDER BY at DESC LIMIT 1
"""
_OPEN = "DROP TRIGGER IF EXISTS shut"


class SqliteSite:
    """A file. It is written as the store's own writer does it: under the lock that all processes share."""

    machine = MACHINE

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self._connection: apsw.Connection | None = None
        self.location = f"sqlite:///{self._path}"

    def is_store(self) -> bool:
        if not self._path.is_file():
            return False
        try:
            refuse_foreign_file(self._path, shipped())
        except StoreArriving:
            return True
        return self._read(lambda database: pragma(database, "application_id")) == APPLICATION_ID

    def note(self, *states: State) -> MoveState | None:
        row = self._one(_NOTED, [",".join(states)])
        return msgspec.convert(row, MoveState) if row else None

    # --- the source ---------------------------------------------------------------------------------------------------

    def block_writes(self, note: MoveState, now: int) -> None:
        def work(database: apsw.Connection) -> None:
            # Checked in the transaction that rejects further writes: no turn can start in between.
            running = database.execute("SELECT count(*) FROM sessions WHERE running_id IS NOT NULL").fetchone()
            if running and running[0]:
                raise busy(self.location, running[0])
            database.execute("INSERT INTO moves (id, state, place, at) VALUES (?, ?, ?, ?)", (*note, now))
            database.execute(_shut(note))

        self._write(work)

    def allow_writes(self, note: MoveState) -> None:
        def work(database: apsw.Connection) -> None:
            database.execute("DELETE FROM moves WHERE id = ? AND state = 'leaving'", (note.id,))
            if not database.changes():
                raise already_moved(self.location, note)
            database.execute(_OPEN)

        self._write(work)

    def mark_moved(self, note: MoveState) -> None:
        def work(database: apsw.Connection) -> None:
            database.execute("UPDATE moves SET state = 'left' WHERE id = ?", (note.id,))
            if not database.changes():
                raise called_off(self.location)

        self._write(work)

    def hosts(self) -> dict[str, str]:
        rows: list[Row] = self._read(lambda database: database.execute("SELECT machine, host FROM hosts").fetchall())
        return dict(msgspec.convert(rows, list[tuple[str, str]]))

    def rows(self, table: Table, after: Row | None) -> list[Row]:
        query = table.select(from_start=after is None)
        return self._read(lambda database: database.execute(query, (*(after or ()), table.step)).fetchall())

    def count(self, table: Table) -> int:
        row = self._one(table.select_count())
        return msgspec.convert(row[0], int) if row else 0

    # --- the target ---------------------------------------------------------------------------------------------------

    def prepare_target(self, note: MoveState, now: int) -> None:
        def work(database: apsw.Connection) -> None:
            for table in TABLES:
                if database.execute(table.select_last()).fetchone() is not None:
                    raise occupied(self.location, table.name)
            database.execute("INSERT INTO moves (id, state, place, at) VALUES (?, ?, ?, ?)", (*note, now))
            database.execute(_shut(note))
            database.execute(f"PRAGMA application_id = {MOVING_ID}")

        self._write(work)

    def last(self, table: Table) -> Row | None:
        return self._one(table.select_last())

    def add(self, table: Table, rows: Sequence[Row]) -> None:
        self._fill(table.insert(), rows)

    def amend(self, table: Table, amendments: Sequence[Row]) -> None:
        if amendments:
            self._fill(table.update(), amendments)

    def _fill(self, statement: str, rows: Sequence[Row]) -> None:
        def work(database: apsw.Connection) -> None:
            if database.execute("SELECT 1 FROM moves WHERE state = 'arriving'").fetchone() is None:
                raise finished(self.location)
            database.executemany(statement, rows)

        self._write(work)

    def finish_target(self, note: MoveState, hosts: Mapping[str, str]) -> None:
        def work(database: apsw.Connection) -> None:
            database.execute("UPDATE moves SET state = 'arrived' WHERE id = ? AND state = 'arriving'", (note.id,))
            if not database.changes():
                raise finished(self.location)
            database.executemany("INSERT INTO hosts (machine, host) VALUES (?, ?)", list(hosts.items()))
            database.execute(_OPEN)
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")

        self._write(work)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # The last connection to close copies the log into the file; no process may write meanwhile.
            with no_other_writer(self._path, _WAIT_SECONDS), store_errors(str(self._path)):
                connection.close()

    # --- internal -----------------------------------------------------------------------------------------------------

    def _one(self, question: str, parameters: Sequence[str] = ()) -> Row | None:
        return self._read(lambda database: database.execute(question, parameters).fetchone())

    def _read(self, work: Callable[[apsw.Connection], T]) -> T:
        with store_errors(str(self._path)):
            return work(self._opened())

    def _write(self, work: Callable[[apsw.Connection], object]) -> None:
        with no_other_writer(self._path, _WAIT_SECONDS), store_errors(str(self._path)):
            database = self._opened()
            database.execute("BEGIN IMMEDIATE")
            try:
                work(database)
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise
            database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _opened(self) -> apsw.Connection:
        if self._connection is None:
            self._connection = open_writer(self._path)
        return self._connection


def _shut(note: MoveState) -> str:
    words = f"{MOVED} {note.location}".replace("'", "''")
    return _BLOCK_WRITES.format(words)
