"""A PostgreSQL database as one end of a move."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec
import psycopg
from psycopg import sql

from backstay.store.engine import Row
from backstay.store.move.moved_tables import TABLES, Table
from backstay.store.move.site import MoveState, State, already_moved, busy, called_off, finished, occupied
from backstay.store.postgres.connection import ServerConnection
from backstay.store.postgres.conninfo import ConnectionTarget
from backstay.store.postgres.engine import machine
from backstay.store.postgres.faults import MOVED, translated

_SETTINGS = {"lock_timeout": "30s"}
_TABLES = """
SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ANY (current_schemas(false)) AND c.relname IN ('backstay_schema', 'backstay_moving')
"""
# Every write transaction marks its commit first, so a process that cannot do that cannot write. Creating the trigger
# waits for all current writers. Looking up a lost commit uses the number 0, which stays possible.
_BLOCK_WRITES = """
CREATE TRIGGER shut BEFORE INSERT ON commits
FOR EACH ROW WHEN (NEW.number <> 0) EXECUTE FUNCTION refuse_change({})
"""
_OPEN = "DROP TRIGGER IF EXISTS shut ON commits"
_NOTE = "INSERT INTO moves (id, state, place, at) VALUES (%s, %s, %s, %s)"
_ARRIVED = "UPDATE moves SET state = 'arrived' WHERE id = %s AND state = 'arriving'"
# A key that has arrived is never assigned again.
_KEYS = """
SELECT setval('keys', greatest(k.last_value, (SELECT max(key) FROM events), (SELECT max(key) FROM messages),
    (SELECT max(key) FROM blobs), (SELECT max(key) FROM chunks))) FROM keys k
"""


class PostgresSite:
    """A database, on one connection of its own."""

    def __init__(self, url: str) -> None:
        self._target = ConnectionTarget(url)
        self._connection: ServerConnection | None = None
        self.location = str(self._target)
        self.machine = machine()

    def is_store(self) -> bool:
        row = self._one(_TABLES)
        return row is not None and bool(row[0])

    def note(self, *states: State) -> MoveState | None:
        row = self._one(
            "SELECT id, state, place FROM moves WHERE state = ANY (%s) ORDER BY at DESC LIMIT 1", [list(states)]
        )
        return msgspec.convert(row, MoveState) if row else None

    # --- the source ---------------------------------------------------------------------------------------------------

    def block_writes(self, note: MoveState, now: int) -> None:
        with self._writing() as connection:
            connection.execute(_block_writes_query(note))
            # After the trigger: no turn can start between this check and the commit.
            row = connection.execute("SELECT count(*) FROM sessions WHERE running_id IS NOT NULL").fetchone()
            if row and row[0]:
                raise busy(self.location, row[0])
            connection.execute(_NOTE, (*note, now))

    def allow_writes(self, note: MoveState) -> None:
        with self._writing() as connection:
            if not connection.execute("DELETE FROM moves WHERE id = %s AND state = 'leaving'", (note.id,)).rowcount:
                raise already_moved(self.location, note)
            connection.execute(_OPEN)

    def mark_moved(self, note: MoveState) -> None:
        with self._writing() as connection:
            if not connection.execute("UPDATE moves SET state = 'left' WHERE id = %s", (note.id,)).rowcount:
                raise called_off(self.location)

    def hosts(self) -> dict[str, str]:
        return dict(msgspec.convert(self._all("SELECT machine, host FROM hosts"), list[tuple[str, str]]))

    def rows(self, table: Table, after: Row | None) -> list[Row]:
        return self._all(_with_placeholders(table.select(from_start=after is None)), [*(after or ()), table.step])

    def count(self, table: Table) -> int:
        row = self._one(table.select_count())
        return msgspec.convert(row[0], int) if row else 0

    # --- the target ---------------------------------------------------------------------------------------------------

    def prepare_target(self, note: MoveState, now: int) -> None:
        with self._writing() as connection:
            connection.execute(_block_writes_query(note))
            for table in TABLES:
                if connection.execute(table.select_last().encode()).fetchone() is not None:
                    raise occupied(self.location, table.name)
            connection.execute(_NOTE, (*note, now))
            connection.execute("ALTER TABLE backstay_schema RENAME TO backstay_moving")

    def last(self, table: Table) -> Row | None:
        return self._one(table.select_last())

    def add(self, table: Table, rows: Sequence[Row]) -> None:
        columns = sql.SQL(", ").join(map(sql.Identifier, table.columns))
        copying = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table.name), columns)
        with self._filling() as connection, connection.cursor() as cursor, cursor.copy(copying) as copy:
            for row in rows:
                copy.write_row(row)

    def amend(self, table: Table, amendments: Sequence[Row]) -> None:
        if amendments:
            with self._filling() as connection, connection.cursor() as cursor:
                cursor.executemany(_with_placeholders(table.update()).encode(), amendments)

    def finish_target(self, note: MoveState, hosts: Mapping[str, str]) -> None:
        with self._writing() as connection:
            if not connection.execute(_ARRIVED, (note.id,)).rowcount:
                raise finished(self.location)
            connection.execute(_KEYS)
            for name, host in hosts.items():
                connection.execute("INSERT INTO hosts (machine, host) VALUES (%s, %s)", (name, host))
            connection.execute(_OPEN)
            connection.execute("ALTER TABLE backstay_moving RENAME TO backstay_schema")
            # Without statistics the server would plan as if the tables were empty.
            connection.execute(sql.SQL("ANALYZE {}").format(sql.SQL(", ").join(sql.Identifier(t.name) for t in TABLES)))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    # --- internal -----------------------------------------------------------------------------------------------------

    def _one(self, question: str, parameters: Sequence[object] = ()) -> Row | None:
        return next(iter(self._all(question, parameters)), None)

    def _all(self, question: str, parameters: Sequence[object] = ()) -> list[Row]:
        with self._store_errors() as connection:
            return connection.execute(question.encode(), parameters).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[ServerConnection]:
        with self._store_errors() as connection, connection.transaction():
            for text in connection.timeouts:
                connection.execute(text)
            yield connection

    @contextmanager
    def _filling(self) -> Iterator[ServerConnection]:
        with self._writing() as connection:
            if connection.execute("SELECT 1 FROM moves WHERE state = 'arriving' FOR SHARE").fetchone() is None:
                raise finished(self.location)
            yield connection

    @contextmanager
    def _store_errors(self) -> Iterator[ServerConnection]:
        try:
            if self._connection is None:
                self._connection = ServerConnection.connect(
                    self._target.conninfo, name=lambda: "move", settings=_SETTINGS, failed=_ignored
                )
            yield self._connection
        except psycopg.Error as error:
            raise translated(error, self.location) from error


def _with_placeholders(statement: str) -> str:
    """A statement in the notation of the driver."""
    return statement.replace("?", "%s")


def _block_writes_query(note: MoveState) -> sql.Composed:
    return sql.SQL(_BLOCK_WRITES).format(sql.Literal(f"{MOVED} {note.location}"))


def _ignored(error: Exception | None) -> None:
    """Ignore the error: there is no pool here."""
