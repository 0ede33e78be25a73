"""Translates errors of PostgreSQL and the network to ours. The only module that knows the driver's errors."""

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

# The beginning of the message of the trigger that rejects writes to a store that was moved.
MOVED = "it is at"
# Another transaction was first. The verb runs again, and sees its changes.
_OVERTAKEN = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.UniqueViolation,
    errors.ForeignKeyViolation,
    # A guarded statement has changed no row.
    errors.DivisionByZero,
)
# The server stops, starts, or has become a standby: another connection will find the one that accepts writes.
_ELSEWHERE = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.IdleInTransactionSessionTimeout,
    errors.ReadOnlySqlTransaction,
)


UNREACHED = "Check that PostgreSQL runs there and accepts connections: host, port, firewall, user, password, database."
_FAILED = "Nothing was changed. Try again; if it persists, check the server's log."

_GRANT = (
    "Let this role own the database, or grant it USAGE and CREATE on the schema, SELECT, INSERT, UPDATE and DELETE on "
    "its tables, SELECT and USAGE on its sequence."
)
_SCHEMA = "Create the schema that search_path names, with CREATE SCHEMA, or name an existing one."


def overtaken(error: psycopg.Error) -> bool:
    """Whether the transaction failed only because another one was first, so that it is run again as a whole."""
    return isinstance(error, _OVERTAKEN)


def lost(error: psycopg.Error, connection: psycopg.Connection[object]) -> bool:
    """Whether the connection is not usable after this error."""
    return connection.closed or isinstance(error, _ELSEWHERE)


def translated(error: psycopg.Error, location: str) -> BackstayError:
    """Our error for an error of the driver."""
    message = _message_of(error)
    match error:
        case errors.DiskFull() | errors.OutOfMemory():
            return StoreFull(f"{location} has no space: {message}")
        case errors.ReadOnlySqlTransaction():
            return StoreUnavailable(
                f"{location} does not accept writes: {message}", hint="It may be a standby; try again."
            )
        case errors.InsufficientPrivilege():
            return StoreReadOnly(f"{location} refuses: {message}", hint=_GRANT)
        case errors.InvalidSchemaName():
            return ConfigError(f"{location} has no schema to work in: {message}", hint=_SCHEMA)
        case errors.LockNotAvailable() | errors.QueryCanceled():
            return StoreUnavailable(
                f"{location} did not answer in time: {message}", hint="Another process holds the session; try again."
            )
        case errors.UndefinedTable() | errors.UndefinedColumn():
            return SchemaMismatch(f"{location} is not a Backstay database of this version: {message}")
        case errors.DataCorrupted() | errors.IndexCorrupted():
            return CorruptRecord(location, f"the database is damaged: {message}")
        case psycopg.IntegrityError():
            return _refused(location, message)
        case _ if _unstorable(error):
            return InvalidPayload(f"a value cannot be stored: {message}", hint="Pass text as text, numbers as numbers.")
        case _:
            return StoreUnavailable(f"{location} failed: {message}", hint=UNREACHED if _unreached(error) else _FAILED)


def _unreached(error: psycopg.Error) -> bool:
    """Whether there was no connection, or it broke: only then the error has no code of the server."""
    return isinstance(error, psycopg.OperationalError) and error.sqlstate is None


def _unstorable(error: psycopg.Error) -> bool:
    """Whether a value has a type that no column accepts. An error of the driver itself has no code."""
    kinds = (psycopg.DataError, errors.UndefinedFunction, errors.DatatypeMismatch)
    return isinstance(error, kinds) or (isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None)


def _refused(location: str, message: str) -> StoreError:
    if message.startswith(MOVED):
        return StoreMoved(f"{location} does not accept writes: {message}")
    return StoreError(f"{location} rejected a write that would break an invariant: {message}")


def _message_of(error: psycopg.Error) -> str:
    """The first line of the server's message; further lines may quote user data."""
    return (error.diag.message_primary or str(error)).strip().partition("\n")[0] or type(error).__name__
