"""Maintenance of a whole database, below the verbs: inspect, copy, vacuum, repair, rescue.

Nothing here creates a database or changes its schema, except `repair`, which opens the store normally.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from backstay.errors import ConfigError, StoreUnavailable
from backstay.model.operations.findings import (
    Contents,
    Copied,
    Finding,
    ProgressCallback,
    Repair,
    Rescue,
    Schema,
    SpaceUsage,
)
from backstay.store import is_postgres, load_postgres, open_store, sqlite_path
from backstay.store.sqlite.maintenance import checkup as sqlite_checkup
from backstay.store.sqlite.maintenance import rescue as sqlite_rescue
from backstay.store.sqlite.maintenance import upkeep as sqlite_upkeep

__all__ = ["backup", "checkup", "contents", "repair", "rescue", "restore", "room", "schema", "vacuum"]


def schema(where: str | Path) -> Schema:
    """The schema version of the database and the newest one; `SchemaMismatch` if it is not a Backstay database."""
    found: Schema = _postgres().schema(str(where)) if is_postgres(where) else sqlite_upkeep.schema(_file(where))
    return found


def room(where: str | Path) -> SpaceUsage:
    """The size of the database, and how much of it a vacuum would free."""
    found: SpaceUsage = _postgres().room(str(where)) if is_postgres(where) else sqlite_upkeep.room(_file(where))
    return found


def vacuum(where: str | Path) -> SpaceUsage:
    """Free unused space; returns the size afterwards. On SQLite, writers wait meanwhile."""
    found: SpaceUsage = _postgres().vacuum(str(where)) if is_postgres(where) else sqlite_upkeep.vacuum(_file(where))
    return found


def backup(where: str | Path, target: Path, *, progress: ProgressCallback) -> Copied:
    """Copy a database file to a new file as of one moment, even while it is in use."""
    if is_postgres(where):
        raise ConfigError(
            "a PostgreSQL database is backed up with its own tools",
            hint="Run pg_dump --format=custom --file=backstay.dump URL, and pg_restore to bring it back.",
        )
    return sqlite_upkeep.backup(_file(where), target, replace=False, progress=progress)


def contents(where: str | Path) -> Contents:
    """The contents of a database file."""
    return sqlite_upkeep.contents(_file(where))


def restore(copy: Path, where: str | Path, *, progress: ProgressCallback) -> Copied:
    """Replace a database file, which no process may use, by a copy of it."""
    if is_postgres(where):
        raise ConfigError("a PostgreSQL database is restored with its own tools", hint="Run pg_restore.")
    target = sqlite_path(where)
    target.parent.mkdir(parents=True, exist_ok=True)
    return sqlite_upkeep.backup(_file(copy), target, replace=True, progress=progress)


def checkup(where: str | Path, *, quick: bool, progress: ProgressCallback) -> Iterator[Finding]:
    """Check a database for every known problem. Changes nothing."""
    if is_postgres(where):
        found: Iterator[Finding] = _postgres("checkup").checkup(str(where), quick=quick, progress=progress)
        return found
    return sqlite_checkup.checkup(sqlite_path(where), quick=quick, progress=progress)


def repair(where: str | Path, repairs: Iterable[Repair]) -> None:
    """Make safe repairs: each could be done by any process at any time, and loses nothing."""
    wanted = set(repairs)
    if "permissions" in wanted:
        sqlite_upkeep.make_private(_file(where))
    if wanted - {"permissions"}:
        with open_store(where) as store:
            store.reap()
            if wanted & {"workers", "imports"}:
                store.collect()
            if "rebuild-index" in wanted:
                store.rebuild_index()
            store.index()


def rescue(where: str | Path, folder: Path, *, progress: ProgressCallback) -> Rescue:
    """Save all readable data of a damaged file, and list every unreadable record."""
    if is_postgres(where):
        raise ConfigError(
            "a PostgreSQL database is rescued with its own tools", hint="See pg_dump, pg_amcheck and your backups."
        )
    return sqlite_rescue.rescue(_file(where), folder, progress)


def _file(where: str | Path) -> Path:
    path = sqlite_path(where).resolve()
    if not path.is_file():
        what = "a directory" if path.is_dir() else "not a regular file" if path.exists() else "not there"
        raise StoreUnavailable(f"{path} is {what}", hint="Name the file of the store with --db.")
    return path


def _postgres(module: str = "upkeep") -> ModuleType:
    return load_postgres(f"backstay.store.postgres.maintenance.{module}")
