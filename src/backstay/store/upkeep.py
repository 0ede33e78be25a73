"""Upkeep: what an operator does to a whole database, seen from below the verbs: look, copy, tidy, mend, rescue.

Nothing here makes a database or changes its schema, except `mend`, which opens the store as everybody does.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from backstay.errors import ConfigError, StoreUnavailable
from backstay.model.upkeep import Copied, Finding, Mend, Rescue, Room, Schema, Tell
from backstay.store import is_postgres, load_postgres, open_store, sqlite_path
from backstay.store.sqlite import checkup as sqlite_checkup
from backstay.store.sqlite import rescue as sqlite_rescue
from backstay.store.sqlite import upkeep as sqlite_upkeep

__all__ = ["backup", "checkup", "mend", "rescue", "room", "schema", "vacuum"]


def schema(where: str | Path) -> Schema:
    """The schema that the database has and the newest there is; `SchemaMismatch` if it is not ours."""
    found: Schema = _postgres().schema(str(where)) if is_postgres(where) else sqlite_upkeep.schema(_file(where))
    return found


def room(where: str | Path) -> Room:
    """How much the database takes, and how much of that a vacuum would give back."""
    found: Room = _postgres().room(str(where)) if is_postgres(where) else sqlite_upkeep.room(_file(where))
    return found


def vacuum(where: str | Path) -> Room:
    """Give room back that holds nothing; how much is taken afterwards. Others wait meanwhile."""
    found: Room = _postgres().vacuum(str(where)) if is_postgres(where) else sqlite_upkeep.vacuum(_file(where))
    return found


def backup(where: str | Path, target: Path, *, replace: bool = False, tell: Tell) -> Copied:
    """Copy a database file as it is at one moment, while others use it."""
    if is_postgres(where):
        raise ConfigError(
            "a PostgreSQL database is backed up with its own tools",
            hint="Run pg_dump --format=custom --file=backstay.dump URL, and pg_restore to bring it back.",
        )
    return sqlite_upkeep.backup(_file(where), target, replace=replace, tell=tell)


def checkup(where: str | Path, *, quick: bool, tell: Tell) -> Iterator[Finding]:
    """Look at everything that can be wrong with a database, and change nothing."""
    if is_postgres(where):
        found: Iterator[Finding] = _postgres("checkup").checkup(str(where), quick=quick, tell=tell)
        return found
    return sqlite_checkup.checkup(sqlite_path(where), quick=quick, tell=tell)


def mend(where: str | Path, mends: Iterable[Mend]) -> None:
    """Do what is safe: everything here could be done by any process at any time, and loses nothing."""
    wanted = set(mends)
    if "permissions" in wanted:
        sqlite_upkeep.make_private(_file(where))
    if wanted - {"permissions"}:
        with open_store(where) as store:
            store.reap()
            if "workers" in wanted:
                store.collect()
            if "rebuild-index" in wanted:
                store.rebuild_index()
            store.index()


def rescue(where: str | Path, folder: Path, *, tell: Tell) -> Rescue:
    """Save all that can be read of a damaged file, and name every record that cannot."""
    if is_postgres(where):
        raise ConfigError(
            "a PostgreSQL database is rescued with its own tools", hint="See pg_dump, pg_amcheck and your backups."
        )
    return sqlite_rescue.rescue(_file(where), folder, tell)


def _file(where: str | Path) -> Path:
    path = sqlite_path(where).resolve()
    if not path.is_file():
        what = "a directory" if path.is_dir() else "not a regular file" if path.exists() else "not there"
        raise StoreUnavailable(f"{path} is {what}", hint="Name the file of the store with --db.")
    return path


def _postgres(module: str = "upkeep") -> ModuleType:
    return load_postgres(f"backstay.store.postgres.{module}")
