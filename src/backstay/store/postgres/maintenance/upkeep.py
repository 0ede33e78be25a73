"""Maintenance of a PostgreSQL database."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from backstay.model.operations.findings import Schema, SpaceUsage
from backstay.store.move.moved_tables import OWN, TABLES
from backstay.store.postgres.connection import ServerConnection
from backstay.store.postgres.conninfo import ConnectionTarget
from backstay.store.postgres.faults import translated
from backstay.store.postgres.migrations import found_schema, shipped

_SIZE = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0), coalesce(sum(
    CASE WHEN s.n_live_tup + s.n_dead_tup = 0 THEN 0
    ELSE pg_relation_size(c.oid) * s.n_dead_tup / (s.n_live_tup + s.n_dead_tup) END), 0)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
WHERE n.nspname = ANY (current_schemas(false)) AND c.relname = ANY (%s) AND c.relkind = 'r'
"""
BACKSTAY_TABLES = [*(table.name for table in TABLES), *OWN]


def schema(url: str) -> Schema:
    """The database's schema version and the newest one; an empty database has version 0."""
    steps = shipped()
    with connected(url) as connection:
        found = found_schema(connection, str(ConnectionTarget(url)), steps)
    missing = tuple(step.name for step in steps if step.number > found)
    return Schema(location=str(ConnectionTarget(url)), found=found, newest=steps[-1].number, missing=missing)


def room(url: str) -> SpaceUsage:
    """The size of our tables and their indexes; the unused part is the server's estimate."""
    with connected(url) as connection:
        row = connection.execute(_SIZE.encode(), (BACKSTAY_TABLES,)).fetchone() or (0, 0)
    return SpaceUsage(location=str(ConnectionTarget(url)), size=int(row[0]), unused=int(row[1]))


def vacuum(url: str) -> SpaceUsage:
    """Let the server reuse unused space, and update its statistics. It blocks no reader and no writer."""
    schema(url)
    with connected(url) as connection:
        tables = sql.SQL(", ").join(sql.Identifier(table.name) for table in TABLES)
        connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(tables))
    return room(url)


@contextmanager
def connected(url: str) -> Iterator[ServerConnection]:
    """A separate connection; the driver's errors are translated to ours."""
    target = ConnectionTarget(url)
    try:
        connection = ServerConnection.connect(
            target.conninfo, name=lambda: "upkeep", settings={"lock_timeout": "30s"}, failed=_ignored
        )
        try:
            yield connection
        finally:
            connection.close()
    except psycopg.Error as error:
        raise translated(error, str(target)) from error


def _ignored(error: Exception | None) -> None:
    """Ignore the error: there is no pool here."""
