"""Translates errors of SQLite and the file system to ours. The only module that knows the driver's errors."""

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
from backstay.store.sqlite.files.descriptors import is_scarce, too_many_files

# The hint for a store that a migration does not fit.
UNFIT = "Nothing of this step was kept. Open the store with the version that wrote it last, or restore a backup."
# The beginning of the message of the trigger that rejects writes to a store that was moved.
MOVED = "it is at"


def translated(error: Exception, path: str) -> StoreError:
    """Our error for an error of the driver."""
    match error:
        case apsw.FullError():
            return StoreFull(f"no space to write {path}: {error}")
        case apsw.ReadOnlyError():
            return StoreReadOnly(f"{path} cannot be written: {error}")
        case apsw.NotADBError():
            return not_a_store(path, "it is not an SQLite database")
        case apsw.CorruptError():
            return CorruptRecord(path, f"the database file is damaged: {error}")
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable(f"{path} is locked by a program that is not Backstay: {error}")
        case apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            return _cannot_open(error, path)
        case apsw.TooBigError():
            return StoreError(f"a value is too large for the database: {error}")
        case apsw.ConstraintError() if str(error).startswith(MOVED):
            return StoreMoved(f"{path} does not accept writes: {error}")
        case apsw.ConstraintError():
            return StoreError(f"{path} rejected a write that would break an invariant: {error}")
        case _:
            return StoreUnavailable(f"{path} failed: {type(error).__name__}: {error}")


def _cannot_open(error: Exception, path: str) -> StoreUnavailable:
    if isinstance(error, apsw.CantOpenError) and is_scarce():
        return too_many_files(path)
    return StoreUnavailable(f"{path} cannot be opened: {error}", hint="Check that it exists and is yours.")


def not_a_store(path: str, why: str) -> SchemaMismatch:
    """The error for a file that Backstay did not create."""
    return SchemaMismatch(
        f"{path} is not a Backstay database: {why}", hint="Choose another path; the file was left untouched."
    )


def breaks_connection(error: Exception) -> bool:
    """Whether the connection is not reliable after this error: its cache may differ from the disk."""
    return isinstance(
        error, apsw.IOError | apsw.CorruptError | apsw.NoMemError | apsw.CantOpenError | apsw.ProtocolError
    )


@contextmanager
def applying(step: str, path: str) -> Iterator[None]:
    """Inside the block a migration runs. An error in its statements is permanent: no later attempt helps."""
    try:
        yield
    except (apsw.SQLError, apsw.ConstraintError, apsw.MismatchError) as error:
        if isinstance(error, apsw.ConstraintError) and str(error).startswith(MOVED):
            raise
        raise SchemaMismatch(f"{path} cannot be changed by {step}: {error}", hint=UNFIT) from error


@contextmanager
def store_errors(path: str) -> Iterator[None]:
    """Translate the driver's errors inside the block to ours."""
    try:
        yield
    except apsw.Error as error:
        raise translated(error, path) from error
