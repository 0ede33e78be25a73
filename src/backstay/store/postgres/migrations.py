"""Migrations: numbered files, applied in one transaction under a lock that every process takes to migrate."""

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

import psycopg

from backstay.errors import SchemaMismatch, StoreArriving
from backstay.store.postgres.connection import ServerConnection
from backstay.store.postgres.faults import translated

_NAME = re.compile(r"(\d{4})_\w+\.sql")
_LOCK = "SELECT pg_advisory_xact_lock(1113815383, 0)"
_SCHEMA = "SELECT max(number), CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) FROM backstay_schema"
# Read from the catalogue itself: `to_regclass` uses a cache, which is out of date after a wait for the lock.
_TABLES = """
SELECT coalesce(bool_or(c.relname = 'backstay_schema'), false), count(*) > 0,
    coalesce(bool_or(c.relname = 'backstay_moving'), false)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ANY (current_schemas(false))
    AND c.relname IN ('backstay_schema', 'backstay_moving', 'sessions', 'events', 'keys')
"""


class PostgresMigration(NamedTuple):
    """One migration of the schema."""

    number: int
    name: str
    sql: str


def shipped() -> tuple[PostgresMigration, ...]:
    """The migrations of this version, in order."""
    folder = files("backstay.store.postgres").joinpath("migrations")
    found = ((_NAME.fullmatch(file.name), file) for file in folder.iterdir())
    return tuple(
        sorted(PostgresMigration(int(match[1]), file.name, file.read_text("utf-8")) for match, file in found if match)
    )


def migrate(connection: ServerConnection, location: str, steps: Sequence[PostgresMigration]) -> tuple[int, int]:
    """Bring the database to the newest schema; returns its number, and the server's time."""
    try:
        schema, server_time = _schema(connection, location)
        if schema < steps[-1].number:
            with connection.transaction():
                # In a large database a migration may take long; other processes that wait for it give up in time.
                connection.execute("SET LOCAL statement_timeout = 0")
                _apply(connection, location, steps)
            schema, server_time = _schema(connection, location)
    except psycopg.Error as error:
        raise translated(error, location) from error
    if schema > steps[-1].number:
        raise _newer(location, schema, steps)
    return schema, server_time


def found_schema(connection: ServerConnection, location: str, steps: Sequence[PostgresMigration]) -> int:
    """The number of the last applied migration, 0 for an empty database. Changes nothing."""
    schema, _ = _schema(connection, location)
    if schema > steps[-1].number:
        raise _newer(location, schema, steps)
    return schema


def _newer(location: str, schema: int, steps: Sequence[PostgresMigration]) -> SchemaMismatch:
    return SchemaMismatch(
        f"{location} has schema {schema}; this version of Backstay supports up to {steps[-1].number}",
        hint="Upgrade this installation: pip install --upgrade backstay",
    )


def _apply(connection: ServerConnection, location: str, steps: Sequence[PostgresMigration]) -> None:
    """Apply all missing migrations in one transaction.

    A process that comes at the same time waits and finds them done.
    """
    connection.execute(_LOCK)
    schema, _ = _schema(connection, location)
    if not schema:
        connection.execute("CREATE TABLE IF NOT EXISTS backstay_schema (number BIGINT NOT NULL PRIMARY KEY)")
    for step in steps:
        if step.number > schema:
            _run(connection, location, step)
            connection.execute("INSERT INTO backstay_schema (number) VALUES (%s)", (step.number,))


def _run(connection: ServerConnection, location: str, step: PostgresMigration) -> None:
    try:
        connection.execute(step.sql.encode())
    except (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError) as error:
        raise SchemaMismatch(f"{location} cannot be changed by {step.name}: {error.diag.message_primary}") from error


def _schema(connection: ServerConnection, location: str) -> tuple[int, int]:
    """The number of the last migration, 0 for an empty database; and the server's time."""
    found, taken, moving = _first_row(connection, _TABLES)
    if found:
        number, server_time = _first_row(connection, _SCHEMA)
        return number or 0, server_time
    if moving:
        raise StoreArriving(f"{location} is not a complete store: a move to it is not finished")
    if taken:
        raise SchemaMismatch(
            f"{location} is not a Backstay database: it belongs to another program",
            hint="Choose another database, or another schema with ?options=-csearch_path%3Dbackstay.",
        )
    return 0, 0


def _first_row(connection: ServerConnection, question: str) -> tuple[int, ...]:
    row = connection.execute(question.encode()).fetchone()
    return row or (0, 0, 0)
