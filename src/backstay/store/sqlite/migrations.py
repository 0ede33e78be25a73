"""Migrations: numbered files, applied under the write lock, one transaction each, after a backup."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw

from backstay.errors import SchemaMismatch, StoreArriving
from backstay.store.sqlite.connection import APPLICATION_ID, MOVING_ID, pragma
from backstay.store.sqlite.faults import applying, not_a_store
from backstay.store.sqlite.files.file_system import size_of

# A database has at least one page, and this is the smallest page size.
SMALLEST = 512
_NAME = re.compile(r"(\d{4})_\w+\.sql")


class SqliteMigration(NamedTuple):
    """One migration of the schema."""

    number: int
    name: str
    sql: str


def shipped() -> tuple[SqliteMigration, ...]:
    """The migrations of this version, in order."""
    folder = Path(__file__).with_name("migrations")
    found = ((_NAME.fullmatch(file.name), file) for file in folder.iterdir())
    steps = sorted(SqliteMigration(int(match[1]), file.name, file.read_text("utf-8")) for match, file in found if match)
    return tuple(steps)


def refuse_foreign_file(path: Path, steps: Sequence[SqliteMigration]) -> None:
    """Raise if the file belongs to another program, or is newer than this version, without leaving a trace.

    First the file is read as if it could never change: no lock, log or journal is touched. If there is a log, the file
    is read again with it, and the log stays as it was. `migrate` checks once more, under the lock.
    """
    size = size_of(path)
    if size == 0:
        return
    if size < SMALLEST and not Path(f"{path}-journal").exists():
        # SQLite takes such a file for an empty database, and would overwrite it.
        raise not_a_store(str(path), f"it has {size} bytes, fewer than any database")
    _look(f"{path.as_uri()}?immutable=1", path, steps)
    if size_of(Path(f"{path}-wal")):
        _look(path.as_uri(), path, steps)


def _look(uri: str, path: Path, steps: Sequence[SqliteMigration]) -> None:
    try:
        connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    except apsw.CantOpenError:
        return
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        refuse_foreign(connection, str(path), steps)
    except (apsw.CorruptError, apsw.IOError, apsw.CantOpenError, apsw.BusyError):
        # In the middle of a checkpoint the file is inconsistent without its log; that does not show whose file it is.
        return
    finally:
        connection.close()


def refuse_foreign(connection: apsw.Connection, path: str, steps: Sequence[SqliteMigration]) -> None:
    """Raise unless the database is empty, or ours and not from a newer version."""
    application, schema, is_empty = _whose(connection)
    if application == APPLICATION_ID:
        newest = steps[-1].number
        if schema > newest:
            raise SchemaMismatch(
                f"{path} has schema {schema}; this version of Backstay supports up to {newest}",
                hint="Upgrade this installation: pip install --upgrade backstay",
            )
    elif application == MOVING_ID:
        raise StoreArriving(f"{path} is not a complete store: a move to it is not finished")
    elif application or schema or not is_empty:
        raise not_a_store(path, "it belongs to another program")


def _whose(connection: apsw.Connection) -> tuple[int, int, bool]:
    """Application id, schema version, and whether it is empty.

    From one snapshot, because others may be creating it now.
    """
    connection.execute("BEGIN")
    try:
        application, schema = pragma(connection, "application_id"), pragma(connection, "user_version")
        return application, schema, connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is None
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def migrate(connection: apsw.Connection, path: Path, steps: Sequence[SqliteMigration]) -> None:
    """Bring the file to the newest schema. The caller holds the write lock and has checked that the file is ours."""
    schema = pragma(connection, "user_version")
    due = [step for step in steps if step.number > schema]
    if due and schema:
        backup(connection, path.with_name(f"{path.name}.before-{due[-1].number:04}"))
    for step in due:
        _apply(connection, path, step)


def backup(connection: apsw.Connection, target: Path, progress: Callable[[int, int], None] | None = None) -> None:
    """Copy the whole database to `target`, which appears complete or not at all."""
    unfinished = target.with_name(target.name + ".part")
    unfinished.unlink(missing_ok=True)
    unfinished.touch(mode=0o600)
    copy = apsw.Connection(str(unfinished))
    try:
        with copy.backup("main", connection, "main") as work:
            while not work.done:
                work.step(1_000)
                if progress is not None:
                    progress(work.page_count - work.remaining, work.page_count)
    finally:
        copy.close()
    # An existing log belongs to the file that is replaced: SQLite would replay it into this one.
    for log in ("-wal", "-shm", "-journal"):
        Path(f"{target}{log}").unlink(missing_ok=True)
    unfinished.rename(target)


def _apply(connection: apsw.Connection, path: Path, step: SqliteMigration) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        with applying(step.name, str(path)):
            connection.execute(step.sql).fetchall()
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {step.number}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
