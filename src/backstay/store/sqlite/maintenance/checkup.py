"""A checkup of a SQLite file, from its disk to the last message in it. Changes nothing."""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from backstay.clock import SystemClock
from backstay.errors import BackstayError, SchemaMismatch, StoreArriving, StoreError
from backstay.model.ids import IdSource, WorkerId
from backstay.model.limits import Limits
from backstay.model.operations.findings import Finding, ProgressCallback, Repair
from backstay.store.engine import Lease
from backstay.store.rows import WORKERS
from backstay.store.soundness import RESTORE, examine
from backstay.store.sqlite.connection import APPLICATION_ID, open_reader, pragma, refuse_old_sqlite
from backstay.store.sqlite.engine import MACHINE, STATEMENTS
from backstay.store.sqlite.faults import store_errors
from backstay.store.sqlite.files.file_locks import lives
from backstay.store.sqlite.files.file_system import MOUNTS, NETWORK, kind_of
from backstay.store.sqlite.maintenance.upkeep import family
from backstay.store.sqlite.migrations import refuse_foreign_file, shipped
from backstay.store.sqlite.transaction import SqliteSettings, SqliteTransaction

_COMPLAINTS = 20
_LITTLE = 100 << 20
# Words in a message of integrity_check that concerns only the search index, which can be rebuilt.
_INDEX = ("search", "fts5", "FTS5")
# Errors of SQLite for a file that may be intact, but cannot be opened now.
_CANNOT_OPEN = (apsw.CantOpenError, apsw.PermissionsError, apsw.ReadOnlyError, apsw.BusyError, apsw.LockedError)


def checkup(path: Path, *, quick: bool, progress: ProgressCallback, mounts: Path = MOUNTS) -> Iterator[Finding]:
    """Check one thing after the other, as far as each can still be checked."""
    yield _library()
    there = _there(path)
    yield there
    if there.level == "wrong":
        return
    path = path.resolve()
    yield _file_system(path, mounts)
    whose = _whose(path)
    # Files of another program are left as they are.
    yield from _permissions(path, repair=None if whose.level == "wrong" else "permissions")
    yield _disk(path)
    yield whose
    if whose.level == "wrong" or path.stat().st_size == 0:
        return
    try:
        with store_errors(str(path)), _reading(path) as reader:
            yield from _inside(reader, path, quick=quick, progress=progress)
    except BackstayError as error:
        yield _unread(error)


def _library() -> Finding:
    version = apsw.sqlite_lib_version()
    try:
        refuse_old_sqlite(version)
    except StoreError as error:
        return Finding(about="SQLite", level="wrong", detail=str(error.args[0]), hint=error.hint)
    return Finding(about="SQLite", level="fine", detail=f"{version} (apsw {apsw.apsw_version()})")


def _there(path: Path) -> Finding:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return Finding(
            about="file", level="wrong", detail=f"{path}: {error.strerror}", hint="Name the store's file with --db."
        )
    if not stat.S_ISREG(mode):
        what = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        return Finding(about="file", level="wrong", detail=f"{path} is {what}", hint="Name the store's file with --db.")
    return Finding(about="file", level="fine", detail=f"{path}, {path.stat().st_size:,} bytes")


def _file_system(path: Path, mounts: Path) -> Finding:
    kind = kind_of(path, mounts)
    if kind in NETWORK:
        return Finding(
            about="file system",
            level="wrong",
            detail=f"{kind} is a network file system, where file locks cannot be trusted",
            hint="Move the store to a local disk, or to PostgreSQL: `backstay move`.",
        )
    if kind is None:
        return Finding(about="file system", level="note", detail="the system does not report its type")
    return Finding(about="file system", level="fine", detail=kind)


def _permissions(path: Path, *, repair: Repair | None) -> Iterator[Finding]:
    open_to_others = [one for one in family(path) if one.stat().st_mode & 0o077]
    if open_to_others:
        yield Finding(
            about="permissions",
            level="wrong",
            detail=f"other users may access {', '.join(one.name for one in open_to_others)}",
            hint="Conversations are private; --fix removes these rights." if repair else "",
            repair=repair,
        )
    if not os.access(path, os.R_OK | os.W_OK) or not os.access(path.parent, os.W_OK | os.X_OK):
        yield Finding(
            about="permissions",
            level="wrong",
            detail=f"you cannot read and write {path} and its directory",
            hint="Run as the user that owns them.",
        )
    elif not open_to_others:
        yield Finding(about="permissions", level="fine", detail="private")


def _disk(path: Path) -> Finding:
    free = shutil.disk_usage(path.parent).free
    detail = f"{free >> 20:,} MiB free"
    if free < _LITTLE:
        return Finding(
            about="disk", level="wrong", detail=detail, hint="Free some space: on a full disk every write is rejected."
        )
    if free < path.stat().st_size:
        return Finding(about="disk", level="note", detail=detail, hint="Too little to copy or vacuum the store here.")
    return Finding(about="disk", level="fine", detail=detail)


def _whose(path: Path) -> Finding:
    """Whether it is a Backstay store, and its schema version."""
    steps = shipped()
    if path.stat().st_size == 0 and not any(one.stat().st_size for one in family(path)[1:] if one.is_file()):
        return _empty(path)
    try:
        with store_errors(str(path)):
            refuse_foreign_file(path, steps)
            with _reading(path) as reader:
                application, schema = pragma(reader, "application_id"), pragma(reader, "user_version")
    except StoreArriving as error:
        return Finding(about="schema", level="wrong", detail=str(error.args[0]), hint="Run `backstay move` again.")
    except SchemaMismatch as error:
        return Finding(about="schema", level="wrong", detail=str(error.args[0]), hint=error.hint)
    except BackstayError as error:
        return _unread(error)
    if application != APPLICATION_ID:
        return _empty(path)
    newest = steps[-1].number
    if schema < newest:
        return Finding(
            about="schema",
            level="note",
            detail=f"{schema}; the newest is {newest}",
            hint="`backstay migrate` makes a backup and brings it up to date; so does opening the store.",
            repair="migrate",
        )
    return Finding(about="schema", level="fine", detail=str(schema))


def _unread(error: BackstayError) -> Finding:
    """The finding for an unreadable file. A damaged one needs a backup; one that cannot be opened may be intact."""
    if isinstance(error.__cause__, _CANNOT_OPEN):
        return Finding(about="file", level="wrong", detail=str(error.args[0]), hint=error.hint)
    return Finding(about="integrity", level="wrong", detail=str(error.args[0]), hint=RESTORE)


def _empty(path: Path) -> Finding:
    if Path(f"{path}.locks").is_dir():
        return Finding(
            about="schema",
            level="wrong",
            detail=f"{path.name} is empty, although there was a store here before: its log may have been deleted",
            hint=f"Put {path.name}-wal back beside it, or restore a backup.",
        )
    return Finding(about="schema", level="note", detail="the file is empty; opening it creates a store")


def _inside(reader: apsw.Connection, path: Path, *, quick: bool, progress: ProgressCallback) -> Iterator[Finding]:
    if not quick:
        yield from _integrity(reader, progress)
    if pragma(reader, "user_version") < shipped()[-1].number:
        return  # An older schema lacks columns that the checks read.
    locks = Path(f"{path}.locks")
    reader.execute("BEGIN")
    try:
        tx = SqliteTransaction(reader, setting(locks))
        yield from examine(tx, quick=quick, progress=progress)
        yield from _workers(tx, locks)
    finally:
        if reader.in_transaction:
            reader.execute("ROLLBACK")


def _integrity(reader: apsw.Connection, progress: ProgressCallback) -> Iterator[Finding]:
    progress("integrity", 0, 2)
    answers = [str(row[0]) for row in reader.execute(f"PRAGMA integrity_check({_COMPLAINTS})")]
    progress("integrity", 1, 2)
    orphans = reader.execute("PRAGMA foreign_key_check").fetchall()
    progress("integrity", 2, 2)
    if answers == ["ok"] and not orphans:
        yield Finding(about="integrity", level="fine", detail="every page, index and reference")
        return
    for answer in answers:
        if answer == "ok":
            continue
        if any(word in answer for word in _INDEX):
            yield Finding(
                about="search index",
                level="wrong",
                detail=answer,
                hint="It can always be rebuilt from the messages: --fix does so.",
                repair="rebuild-index",
            )
        else:
            yield Finding(about="integrity", level="wrong", detail=answer, hint=RESTORE)
    for table, key, parent, _ in orphans[:_COMPLAINTS]:
        detail = f"a row of {table} (rowid {key}) refers to a row of {parent} that does not exist"
        yield Finding(about="integrity", level="wrong", detail=detail, hint=RESTORE)


def _workers(tx: SqliteTransaction, locks: Path) -> Iterator[Finding]:
    dead = [worker for worker in WORKERS.all(tx) if not lives(locks / worker.id)]
    if dead:
        yield Finding(
            about="workers",
            level="note",
            detail=f"{len(dead)} ended without closing: "
            + ", ".join(f"process {worker.pid} on {worker.host}" for worker in dead[:5]),
            hint="They block nothing; --fix removes them.",
            repair="workers",
        )


def setting(locks: Path) -> SqliteSettings:
    """Settings for verbs that only read. The locks in this directory show which workers are alive."""
    clock = SystemClock()

    def lapsed(lease: Lease) -> bool:
        if lease.boot_id != clock.boot_id or lease.until <= clock.boot():
            return True
        return not lives(locks / lease.holder)

    return SqliteSettings(
        statements=STATEMENTS,
        clock=clock,
        ids=IdSource(clock),
        limits=Limits(),
        worker=WorkerId("doctor"),
        lease_ms=0,
        lapsed=lapsed,
        host=lambda: MACHINE,
    )


@contextmanager
def _reading(path: Path) -> Iterator[apsw.Connection]:
    reader = open_reader(path)
    try:
        yield reader
    finally:
        reader.close()
