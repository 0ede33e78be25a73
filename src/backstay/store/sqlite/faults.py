"""What SQLite and the file system complain of, said in our words. The only place that knows the driver's errors."""

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from backstay.errors import (
    CorruptRecord,
    SchemaMismatch,
    StoreError,
    StoreFull,
    StoreMoved,
    StoreReadOnly,
    StoreUnavailable,
)

# What the trigger says that keeps a store that left from being written.
MOVED = "it is at"


def translated(error: Exception, path: str) -> StoreError:
    """The error a caller should see for this one of the driver's."""
    match error:
        case apsw.FullError():
            return StoreFull(f"no room to write {path}: {error}")
        case apsw.ReadOnlyError():
            return StoreReadOnly(f"{path} cannot be written: {error}")
        case apsw.NotADBError():
            return not_ours(path, "it is not an SQLite database")
        case apsw.CorruptError():
            return CorruptRecord(path, f"the database file is damaged: {error}")
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable(f"{path} is locked by a program that is not Backstay: {error}")
        case apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            return StoreUnavailable(f"{path} cannot be opened: {error}", hint="Check that it exists and is yours.")
        case apsw.TooBigError():
            return StoreError(f"a value is too large for the database: {error}")
        case apsw.ConstraintError() if str(error).startswith(MOVED):
            return StoreMoved(f"{path} takes no writes: {error}")
        case apsw.ConstraintError():
            return StoreError(f"{path} refused a write that would break an invariant: {error}")
        case _:
            return StoreUnavailable(f"{path} failed: {type(error).__name__}: {error}")


def not_ours(path: str, why: str) -> SchemaMismatch:
    """The error for a file that Backstay did not make."""
    return SchemaMismatch(
        f"{path} is not a Backstay database: {why}", hint="Choose another path; the file was left untouched."
    )


def poisons(error: Exception) -> bool:
    """Whether a connection may no longer be trusted after this error: what it holds may differ from the disk."""
    return isinstance(
        error, apsw.IOError | apsw.CorruptError | apsw.NoMemError | apsw.CantOpenError | apsw.ProtocolError
    )


@contextmanager
def in_our_words(path: str) -> Iterator[None]:
    """Turn the driver's errors inside the block into ours."""
    try:
        yield
    except apsw.Error as error:
        raise translated(error, path) from error
