"""A checkup of a SQLite file, from the disk it lies on to the last message in it. Changes nothing."""

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
from backstay.model.lease import Lease
from backstay.model.limits import Limits
from backstay.model.upkeep import Finding, Mend, Tell
from backstay.store.soundness import RESTORE, examine
from backstay.store.sqlite.connection import APPLICATION_ID, open_reader, pragma, refuse_old_sqlite
from backstay.store.sqlite.engine import QUERIES
from backstay.store.sqlite.faults import in_our_words
from backstay.store.sqlite.filelock import lives
from backstay.store.sqlite.filesystem import MOUNTS, NETWORK, kind_of
from backstay.store.sqlite.migrations import refuse_foreign_file, shipped
from backstay.store.sqlite.transaction import Setting, SqliteTransaction
from backstay.store.sqlite.upkeep import family

_COMPLAINTS = 20
_LITTLE = 100 << 20
# What integrity_check says when only the search index, which can be made anew, is damaged.
_INDEX = ("search", "fts5", "FTS5")
# What SQLite says when the file may be whole, but is not for us to open now.
_NOT_LET_IN = (apsw.CantOpenError, apsw.PermissionsError, apsw.ReadOnlyError, apsw.BusyError, apsw.LockedError)


def checkup(path: Path, *, quick: bool, tell: Tell, mounts: Path = MOUNTS) -> Iterator[Finding]:
    """Look at one thing after the other, as far as each can still be looked at."""
    yield _library()
    there = _there(path)
    yield there
    if there.level == "wrong":
        return
    path = path.resolve()
    yield _file_system(path, mounts)
    whose = _whose(path)
    # Whatever is somebody else's is left as it is.
    yield from _permissions(path, mend=None if whose.level == "wrong" else "permissions")
    yield _disk(path)
    yield whose
    if whose.level == "wrong" or path.stat().st_size == 0:
        return
    try:
        with in_our_words(str(path)), _reading(path) as reader:
            yield from _inside(reader, path, quick=quick, tell=tell)
    except BackstayError as error:
        yield _unread(error)


def _library() -> Finding:
    version = apsw.sqlite_lib_version()
    try:
        refuse_old_sqlite(version)
    except StoreError as error:
        return Finding(about="SQLite", level="wrong", said=str(error.args[0]), advice=error.advice)
    return Finding(about="SQLite", level="fine", said=f"{version} (apsw {apsw.apsw_version()})")


def _there(path: Path) -> Finding:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return Finding(
            about="file", level="wrong", said=f"{path}: {error.strerror}", advice="Name the store's file with --db."
        )
    if not stat.S_ISREG(mode):
        what = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        return Finding(about="file", level="wrong", said=f"{path} is {what}", advice="Name the store's file with --db.")
    return Finding(about="file", level="fine", said=f"{path}, {path.stat().st_size:,} bytes")


def _file_system(path: Path, mounts: Path) -> Finding:
    kind = kind_of(path, mounts)
    if kind in NETWORK:
        return Finding(
            about="file system",
            level="wrong",
            said=f"{kind} is a network file system, where file locks cannot be trusted",
            advice="Move the store to a local disk, or to PostgreSQL: `backstay move`.",
        )
    if kind is None:
        return Finding(about="file system", level="note", said="the system does not say what it is")
    return Finding(about="file system", level="fine", said=kind)


def _permissions(path: Path, *, mend: Mend | None) -> Iterator[Finding]:
    open_to_others = [one for one in family(path) if one.stat().st_mode & 0o077]
    if open_to_others:
        yield Finding(
            about="permissions",
            level="wrong",
            said=f"others may use {', '.join(one.name for one in open_to_others)}",
            advice="Conversations are private: --fix takes these rights away." if mend else "",
            mend=mend,
        )
    if not os.access(path, os.R_OK | os.W_OK) or not os.access(path.parent, os.W_OK | os.X_OK):
        yield Finding(
            about="permissions",
            level="wrong",
            said=f"you may not read and write {path} and its directory",
            advice="Run as the user to whom they belong.",
        )
    elif not open_to_others:
        yield Finding(about="permissions", level="fine", said="private")


def _disk(path: Path) -> Finding:
    free = shutil.disk_usage(path.parent).free
    said = f"{free >> 20:,} MiB free"
    if free < _LITTLE:
        return Finding(
            about="disk", level="wrong", said=said, advice="Free some space: without it nothing is accepted."
        )
    if free < path.stat().st_size:
        return Finding(about="disk", level="note", said=said, advice="Too little to copy or vacuum the store here.")
    return Finding(about="disk", level="fine", said=said)


def _whose(path: Path) -> Finding:
    """Whether it is a store of ours, and of which schema."""
    steps = shipped()
    if path.stat().st_size == 0 and not any(one.stat().st_size for one in family(path)[1:] if one.is_file()):
        return _empty(path)
    try:
        with in_our_words(str(path)):
            refuse_foreign_file(path, steps)
            with _reading(path) as reader:
                ours, schema = pragma(reader, "application_id"), pragma(reader, "user_version")
    except StoreArriving as error:
        return Finding(about="schema", level="wrong", said=str(error.args[0]), advice="Run `backstay move` again.")
    except SchemaMismatch as error:
        return Finding(about="schema", level="wrong", said=str(error.args[0]), advice=error.advice)
    except BackstayError as error:
        return _unread(error)
    if ours != APPLICATION_ID:
        return _empty(path)
    newest = steps[-1].number
    if schema < newest:
        return Finding(
            about="schema",
            level="note",
            said=f"{schema}; the newest is {newest}",
            advice="`backstay migrate` makes a backup and brings it up to date; so does whoever opens it next.",
            mend="migrate",
        )
    return Finding(about="schema", level="fine", said=str(schema))


def _unread(error: BackstayError) -> Finding:
    """What is damaged needs a backup; what only cannot be opened may be whole."""
    if isinstance(error.__cause__, _NOT_LET_IN):
        return Finding(about="file", level="wrong", said=str(error.args[0]), advice=error.advice)
    return Finding(about="integrity", level="wrong", said=str(error.args[0]), advice=RESTORE)


def _empty(path: Path) -> Finding:
    if Path(f"{path}.locks").is_dir():
        return Finding(
            about="schema",
            level="wrong",
            said=f"{path.name} is empty, although a store was open here before: its log may have been deleted",
            advice=f"Put {path.name}-wal back beside it, or restore a backup.",
        )
    return Finding(about="schema", level="note", said="the file is empty; whoever opens it makes a store of it")


def _inside(reader: apsw.Connection, path: Path, *, quick: bool, tell: Tell) -> Iterator[Finding]:
    if not quick:
        yield from _integrity(reader, tell)
    if pragma(reader, "user_version") < shipped()[-1].number:
        return  # What the older schema lacks cannot be asked for.
    locks = Path(f"{path}.locks")
    reader.execute("BEGIN")
    try:
        tx = SqliteTransaction(reader, setting(locks))
        yield from examine(tx, quick=quick, tell=tell)
        yield from _workers(tx, locks)
    finally:
        if reader.in_transaction:
            reader.execute("ROLLBACK")


def _integrity(reader: apsw.Connection, tell: Tell) -> Iterator[Finding]:
    tell("integrity", 0, 2)
    answers = [str(row[0]) for row in reader.execute(f"PRAGMA integrity_check({_COMPLAINTS})")]
    tell("integrity", 1, 2)
    strays = reader.execute("PRAGMA foreign_key_check").fetchall()
    tell("integrity", 2, 2)
    if answers == ["ok"] and not strays:
        yield Finding(about="integrity", level="fine", said="every page, index and reference")
        return
    for answer in answers:
        if answer == "ok":
            continue
        if any(word in answer for word in _INDEX):
            yield Finding(
                about="search index",
                level="wrong",
                said=answer,
                advice="It is made of the messages and can always be made anew: --fix does so.",
                mend="rebuild-index",
            )
        else:
            yield Finding(about="integrity", level="wrong", said=answer, advice=RESTORE)
    for table, key, parent, _ in strays[:_COMPLAINTS]:
        said = f"a row of {table} (rowid {key}) refers to a row of {parent} that is not there"
        yield Finding(about="integrity", level="wrong", said=said, advice=RESTORE)


def _workers(tx: SqliteTransaction, locks: Path) -> Iterator[Finding]:
    dead = [row for row in tx.all("workers") if not lives(locks / row[0])]
    if dead:
        yield Finding(
            about="workers",
            level="note",
            said=f"{len(dead)} went without a word: "
            + ", ".join(f"process {pid} on {host}" for _, host, pid, *_ in dead[:5]),
            advice="They hold nothing up; --fix forgets them.",
            mend="workers",
        )


def setting(locks: Path) -> Setting:
    """What verbs that only read need; who lives, the locks in this directory say."""
    clock = SystemClock()

    def lapsed(lease: Lease) -> bool:
        if lease.boot_id != clock.boot_id or lease.until <= clock.boot():
            return True
        return not lives(locks / lease.holder)

    return Setting(
        queries=QUERIES,
        clock=clock,
        ids=IdSource(clock),
        limits=Limits(),
        worker=WorkerId("doctor"),
        lease_ms=0,
        lapsed=lapsed,
    )


@contextmanager
def _reading(path: Path) -> Iterator[apsw.Connection]:
    reader = open_reader(path)
    try:
        yield reader
    finally:
        reader.close()
