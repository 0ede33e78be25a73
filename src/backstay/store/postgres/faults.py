"""What PostgreSQL and the network complain of, said in our words. The only place that knows the driver's errors."""

import psycopg
from psycopg import errors

from backstay.errors import (
    BackstayError,
    ConfigError,
    CorruptRecord,
    InvalidPayload,
    SchemaMismatch,
    StoreError,
    StoreFull,
    StoreMoved,
    StoreReadOnly,
    StoreUnavailable,
)

# What the trigger says that keeps a store that left from being written.
MOVED = "it is at"
# Somebody else was first. The verb looks again, and sees what they did.
_OVERTAKEN = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.UniqueViolation,
    errors.ForeignKeyViolation,
)
# The server goes, comes, or has become a standby: another connection will find the one that takes writes.
_ELSEWHERE = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.IdleInTransactionSessionTimeout,
    errors.ReadOnlySqlTransaction,
)


UNREACHED = "Check that PostgreSQL runs there and takes connections: host, port, firewall, user, password, database."
_FAILED = "Nothing was changed. Try again; if it persists, look into the server's log."

_GRANT = (
    "Let this role own the database, or grant it USAGE and CREATE on the schema, SELECT, INSERT, UPDATE and DELETE on "
    "its tables, SELECT and USAGE on its sequence."
)
_SCHEMA = "Make the schema that search_path names, with CREATE SCHEMA, or name one that is there."


def overtaken(error: psycopg.Error) -> bool:
    """Whether the transaction failed only because another one was first, so that it is run again as a whole."""
    return isinstance(error, _OVERTAKEN)


def lost(error: psycopg.Error, connection: psycopg.Connection[object]) -> bool:
    """Whether the connection is of no more use after this error."""
    return connection.closed or isinstance(error, _ELSEWHERE)


def translated(error: psycopg.Error, place: str) -> BackstayError:
    """The error a caller should see for this one of the driver's."""
    said = _said(error)
    match error:
        case errors.DiskFull() | errors.OutOfMemory():
            return StoreFull(f"{place} has no room: {said}")
        case errors.ReadOnlySqlTransaction():
            return StoreUnavailable(f"{place} takes no writes now: {said}", hint="It may be a standby; try again.")
        case errors.InsufficientPrivilege():
            return StoreReadOnly(f"{place} refuses: {said}", hint=_GRANT)
        case errors.InvalidSchemaName():
            return ConfigError(f"{place} has no schema to work in: {said}", hint=_SCHEMA)
        case errors.LockNotAvailable() | errors.QueryCanceled():
            return StoreUnavailable(
                f"{place} did not answer in time: {said}", hint="Somebody holds the session; retry."
            )
        case errors.UndefinedTable() | errors.UndefinedColumn():
            return SchemaMismatch(f"{place} is not a Backstay database of this version: {said}")
        case errors.DataCorrupted() | errors.IndexCorrupted():
            return CorruptRecord(place, f"the database is damaged: {said}")
        case psycopg.IntegrityError():
            return _refused(place, said)
        case _ if _unstorable(error):
            return InvalidPayload(f"a value cannot be stored: {said}", hint="Pass text as text, numbers as numbers.")
        case _:
            return StoreUnavailable(f"{place} failed: {said}", hint=UNREACHED if _unreached(error) else _FAILED)


def _unreached(error: psycopg.Error) -> bool:
    """Whether there was no connection, or it broke: only then the driver has no code of the server's."""
    return isinstance(error, psycopg.OperationalError) and error.sqlstate is None


def _unstorable(error: psycopg.Error) -> bool:
    """Whether a value was of a kind that no column takes; when the driver says so, its error has no code."""
    kinds = (psycopg.DataError, errors.UndefinedFunction, errors.DatatypeMismatch)
    return isinstance(error, kinds) or (isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None)


def _refused(place: str, said: str) -> StoreError:
    if said.startswith(MOVED):
        return StoreMoved(f"{place} takes no writes: {said}")
    return StoreError(f"{place} refused a write that would break an invariant: {said}")


def _said(error: psycopg.Error) -> str:
    """The first line of what the server said; more lines may quote what people wrote."""
    return (error.diag.message_primary or str(error)).strip().partition("\n")[0] or type(error).__name__
