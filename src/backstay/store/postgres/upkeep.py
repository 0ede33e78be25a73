"""Upkeep of a PostgreSQL database."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from backstay.model.upkeep import Room, Schema
from backstay.store.moving.tables import OWN, TABLES
from backstay.store.postgres.conninfo import Place
from backstay.store.postgres.faults import translated
from backstay.store.postgres.migrations import found_schema, shipped
from backstay.store.postgres.wire import Wire

_SIZE = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0), coalesce(sum(
    CASE WHEN s.n_live_tup + s.n_dead_tup = 0 THEN 0
    ELSE pg_relation_size(c.oid) * s.n_dead_tup / (s.n_live_tup + s.n_dead_tup) END), 0)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
WHERE n.nspname = ANY (current_schemas(false)) AND c.relname = ANY (%s) AND c.relkind = 'r'
"""
OUR_TABLES = [*(table.name for table in TABLES), *OWN]


def schema(url: str) -> Schema:
    """The database's schema and the newest; an empty database has none yet."""
    steps = shipped()
    with connected(url) as wire:
        found = found_schema(wire, str(Place(url)), steps)
    missing = tuple(step.name for step in steps if step.number > found)
    return Schema(place=str(Place(url)), found=found, newest=steps[-1].number, missing=missing)


def room(url: str) -> Room:
    """What our tables and their indexes take; the server guesses how much of it is unused."""
    with connected(url) as wire:
        row = wire.execute(_SIZE.encode(), (OUR_TABLES,)).fetchone() or (0, 0)
    return Room(place=str(Place(url)), size=int(row[0]), unused=int(row[1]))


def vacuum(url: str) -> Room:
    """Let the server use again what holds nothing, and look anew at what there is. Nobody waits."""
    schema(url)
    with connected(url) as wire:
        tables = sql.SQL(", ").join(sql.Identifier(table.name) for table in TABLES)
        wire.execute(sql.SQL("VACUUM (ANALYZE) {}").format(tables))
    return room(url)


@contextmanager
def connected(url: str) -> Iterator[Wire]:
    """A connection of one's own; the driver's errors in our words."""
    place = Place(url)
    try:
        wire = Wire.connect(place.conninfo, name=lambda: "upkeep", settings={"lock_timeout": "30s"}, failed=_ignored)
        try:
            yield wire
        finally:
            wire.close()
    except psycopg.Error as error:
        raise translated(error, str(place)) from error


def _ignored(error: Exception | None) -> None:
    """Nobody waits for a pool here."""
