"""Maintenance of a SQLite file."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw
import msgspec

from backstay.errors import ConfigError, CorruptRecord, StoreUnavailable
from backstay.model.operations.findings import Contents, Copied, ProgressCallback, Schema, SpaceUsage
from backstay.store.sqlite import migrations
from backstay.store.sqlite.connection import open_reader, open_writer, pragma
from backstay.store.sqlite.faults import store_errors
from backstay.store.sqlite.files.file_locks import lives, no_other_writer
from backstay.store.sqlite.files.file_system import refuse_network, size_of
from backstay.store.sqlite.migrations import refuse_foreign_file, shipped

_WAIT_SECONDS = 30.0


def schema(path: Path) -> Schema:
    """The file's schema version and the newest one; an empty file has version 0."""
    steps = shipped()
    with store_errors(str(path)):
        refuse_foreign_file(path, steps)
        found = 0 if size_of(path) == 0 else _pragma(path, "user_version")
    missing = tuple(step.name for step in steps if step.number > found)
    return Schema(location=str(path), found=found, newest=steps[-1].number, missing=missing)


def room(path: Path) -> SpaceUsage:
    """The size of the file and its log."""
    _refuse_foreign(path)
    with _reading(path) as reader:
        unused = pragma(reader, "freelist_count") * pragma(reader, "page_size")
    return SpaceUsage(location=str(path), size=size_of(path) + size_of(Path(f"{path}-wal")), unused=unused)


def vacuum(path: Path) -> SpaceUsage:
    """Rewrite the file without unused pages. Writers wait; readers continue."""
    _refuse_foreign(path)
    with no_other_writer(path, _WAIT_SECONDS), store_errors(str(path)):
        connection = open_writer(path)
        try:
            connection.execute("VACUUM")
            # While a reader still uses the old state, the log stays; the next writer copies it into the file.
            with suppress(apsw.BusyError):
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            connection.close()
    return room(path)


def backup(path: Path, target: Path, *, replace: bool, progress: ProgressCallback) -> Copied:
    """Copy the file as it is now, and check the copy."""
    _refuse_foreign(path)
    target = target.expanduser().absolute()
    _refuse_target(path, target, replace=replace)
    with _reading(path) as reader:
        # One snapshot for all steps: otherwise every write of another process would restart the copy.
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        try:
            migrations.backup(reader, target, lambda done, total: progress("copying", done, total))
        except OSError as error:
            raise StoreUnavailable(f"{target} cannot be written: {error.strerror}", hint="Choose another.") from error
    progress("checking", 0, 1)
    _look_at(target)
    progress("checking", 1, 1)
    return Copied(source=str(path), target=str(target), size=target.stat().st_size)


def contents(path: Path) -> Contents:
    """How many sessions a file has, and when one of them was last active."""
    _refuse_foreign(path)
    with _reading(path) as reader:
        query = "SELECT count(*), max(active_at) FROM sessions WHERE state <> 'deleted'"
        sessions, active_at = msgspec.convert(reader.execute(query).fetchall(), list[tuple[int, int | None]])[0]
    return Contents(location=str(path), sessions=sessions, active_at=active_at)


def make_private(path: Path) -> None:
    """Remove the permissions of other users on the file and the files beside it."""
    for beside in family(path):
        try:
            mode = beside.stat().st_mode
            beside.chmod(mode & 0o700)
        except OSError as error:
            raise StoreUnavailable(
                f"{beside} cannot be made private: {error.strerror}", hint="Ask its owner."
            ) from error


def family(path: Path) -> list[Path]:
    """The file and the files that belong to it, as far as they exist."""
    named = [path, *(Path(f"{path}{end}") for end in ("-wal", "-shm", ".locks"))]
    return [one for one in named if one.exists()]


def _refuse_foreign(path: Path) -> None:
    refuse_network(path)
    with store_errors(str(path)):
        refuse_foreign_file(path, shipped())
        if size_of(path) == 0 or not _pragma(path, "application_id"):
            raise ConfigError(f"{path} is empty: nothing was ever stored in it", hint="Name another file with --db.")


def _refuse_target(path: Path, target: Path, *, replace: bool) -> None:
    if target.is_dir():
        raise ConfigError(f"{target} is a directory", hint="Name a file in it.")
    if not target.parent.is_dir():
        raise ConfigError(f"there is no directory {target.parent}", hint="Create it first.")
    if target.exists():
        if path.samefile(target):
            raise ConfigError(f"{target} is the store itself", hint="Name another file.")
        if not replace:
            raise ConfigError(
                f"{target} already exists", hint="Name another file. To go back to a copy, use `backstay restore`."
            )
        if any(map(lives, Path(f"{target}.locks").glob("wrk_*"))):
            raise ConfigError(f"{target} is in use by another process", hint="Stop that process first.")


def _look_at(target: Path) -> None:
    with _reading(target) as reader:
        answers = [row[0] for row in reader.execute("PRAGMA quick_check(1)")]
    if answers != ["ok"]:
        raise CorruptRecord(str(target), f"the copy is damaged, and so is the original: {answers[0]}")


def _pragma(path: Path, name: str) -> int:
    with _reading(path) as reader:
        return pragma(reader, name)


@contextmanager
def _reading(path: Path) -> Iterator[apsw.Connection]:
    with store_errors(str(path)):
        reader = open_reader(path)
        try:
            yield reader
        finally:
            reader.close()
