"""Upkeep of a SQLite file."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from backstay.errors import ConfigError, CorruptRecord, StoreUnavailable
from backstay.model.upkeep import Copied, Room, Schema, Tell
from backstay.store.sqlite import migrations
from backstay.store.sqlite.connection import open_reader, open_writer, pragma
from backstay.store.sqlite.faults import in_our_words
from backstay.store.sqlite.filelock import lives, no_other_writer
from backstay.store.sqlite.filesystem import refuse_network
from backstay.store.sqlite.migrations import refuse_foreign_file, shipped

_WAIT_SECONDS = 30.0


def schema(path: Path) -> Schema:
    """The file's schema and the newest; an empty file has none yet."""
    steps = shipped()
    with in_our_words(str(path)):
        refuse_foreign_file(path, steps)
        found = 0 if path.stat().st_size == 0 else _asked(path, "user_version")
    missing = tuple(step.name for step in steps if step.number > found)
    return Schema(place=str(path), found=found, newest=steps[-1].number, missing=missing)


def room(path: Path) -> Room:
    """What the file and its log take."""
    _refuse_foreign(path)
    with _reading(path) as reader:
        unused = pragma(reader, "freelist_count") * pragma(reader, "page_size")
    log = Path(f"{path}-wal")
    logged = log.stat().st_size if log.exists() else 0
    return Room(place=str(path), size=path.stat().st_size + logged, unused=unused)


def vacuum(path: Path) -> Room:
    """Write the file anew without what holds nothing. Writers wait; readers go on."""
    _refuse_foreign(path)
    with no_other_writer(path, _WAIT_SECONDS), in_our_words(str(path)):
        connection = open_writer(path)
        try:
            connection.execute("VACUUM")
            # While somebody still reads what was before, the log stays; whoever writes next copies it into the file.
            with suppress(apsw.BusyError):
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            connection.close()
    return room(path)


def backup(path: Path, target: Path, *, replace: bool, tell: Tell) -> Copied:
    """Copy the file as it is now, and look at the copy."""
    _refuse_foreign(path)
    target = target.expanduser().absolute()
    _refuse_target(path, target, replace=replace)
    with _reading(path) as reader:
        # One snapshot for all steps: otherwise every write of others would make it begin again.
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        try:
            migrations.backup(reader, target, lambda done, total: tell("copying", done, total))
        except OSError as error:
            raise StoreUnavailable(f"{target} cannot be written: {error.strerror}", hint="Choose another.") from error
    tell("checking", 0, 1)
    _look_at(target)
    tell("checking", 1, 1)
    return Copied(source=str(path), target=str(target), size=target.stat().st_size)


def make_private(path: Path) -> None:
    """Take from others every right to the file and what lies beside it."""
    for beside in family(path):
        try:
            mode = beside.stat().st_mode
            beside.chmod(mode & 0o700)
        except OSError as error:
            raise StoreUnavailable(
                f"{beside} cannot be made private: {error.strerror}", hint="Ask its owner."
            ) from error


def family(path: Path) -> list[Path]:
    """The file and what belongs to it, as far as it is there."""
    named = [path, *(Path(f"{path}{end}") for end in ("-wal", "-shm", ".locks"))]
    return [one for one in named if one.exists()]


def _refuse_foreign(path: Path) -> None:
    refuse_network(path)
    with in_our_words(str(path)):
        refuse_foreign_file(path, shipped())
        if path.stat().st_size == 0 or not _asked(path, "application_id"):
            raise ConfigError(f"{path} is empty: nothing was ever stored in it", hint="Name another file with --db.")


def _refuse_target(path: Path, target: Path, *, replace: bool) -> None:
    if target.is_dir():
        raise ConfigError(f"{target} is a directory", hint="Name a file in it.")
    if not target.parent.is_dir():
        raise ConfigError(f"there is no directory {target.parent}", hint="Make it first.")
    if target.exists():
        if path.samefile(target):
            raise ConfigError(f"{target} is the store itself", hint="Name another file.")
        if not replace:
            raise ConfigError(f"{target} is there already", hint="Name another file, or say --replace.")
        if any(map(lives, Path(f"{target}.locks").glob("wrk_*"))):
            raise ConfigError(f"{target} is in use by another process", hint="Stop whoever has it open first.")


def _look_at(target: Path) -> None:
    with _reading(target) as reader:
        answers = [row[0] for row in reader.execute("PRAGMA quick_check(1)")]
    if answers != ["ok"]:
        raise CorruptRecord(str(target), f"the copy is damaged, and so is what was copied: {answers[0]}")


def _asked(path: Path, name: str) -> int:
    with _reading(path) as reader:
        return pragma(reader, name)


@contextmanager
def _reading(path: Path) -> Iterator[apsw.Connection]:
    with in_our_words(str(path)):
        reader = open_reader(path)
        try:
            yield reader
        finally:
            reader.close()
