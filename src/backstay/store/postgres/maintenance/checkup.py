"""A checkup of a PostgreSQL database: server, schema and content. Changes nothing."""

from collections.abc import Iterator

from backstay.clock import SystemClock
from backstay.errors import BackstayError, StoreArriving
from backstay.model.ids import IdSource, WorkerId
from backstay.model.limits import Limits
from backstay.model.operations.findings import Finding, ProgressCallback
from backstay.store.postgres.connection import ServerConnection
from backstay.store.postgres.conninfo import ConnectionTarget
from backstay.store.postgres.engine import machine
from backstay.store.postgres.maintenance.upkeep import BACKSTAY_TABLES, connected, room
from backstay.store.postgres.migrations import found_schema, shipped
from backstay.store.postgres.protocol.pipeline import Pipeline
from backstay.store.postgres.server_time import ServerTime
from backstay.store.postgres.statements import reading
from backstay.store.postgres.transaction import PostgresSettings, ReadingTransaction
from backstay.store.postgres.watch.lease_watch import LeaseWatch
from backstay.store.soundness import RESTORE, examine

_NOW = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"
_BROKEN = """
SELECT c.relname FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_class t ON t.oid = i.indrelid JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
WHERE NOT i.indisvalid AND n.nspname = ANY (current_schemas(false)) AND t.relname = ANY (%s)
"""
# With several privileges in one call, the server reports whether there is any one of them.
_MAY_WRITE = """
SELECT bool_and(has_table_privilege(name, may)) AND bool_and(has_sequence_privilege('keys', may_count))
FROM unnest(%s::text[]) name, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) may,
    unnest(ARRAY['SELECT', 'USAGE']) may_count
"""


def checkup(url: str, *, quick: bool, progress: ProgressCallback) -> Iterator[Finding]:
    """Check one thing after the other, as far as each can still be checked."""
    about = "server"
    try:
        with connected(url) as connection:
            yield Finding(
                about="server",
                level="fine",
                detail=f"PostgreSQL {connection.version // 10_000}.{connection.version % 10_000}",
            )
            about = "schema"
            schema = _schema(connection, url)
            yield schema
            if schema.repair is not None:
                return
            about = "integrity"
            yield _privileges(connection)
            yield from _indexes(connection)
            yield Finding(about="room", level="fine", detail=f"{room(url).size >> 10:,} KiB of tables and indexes")
            yield from _inside(connection, quick=quick, progress=progress)
    except StoreArriving as error:
        yield Finding(about=about, level="wrong", detail=str(error.args[0]), hint="Run `backstay move` again.")
    except BackstayError as error:
        yield Finding(about=about, level="wrong", detail=str(error.args[0]), hint=error.hint or RESTORE)


def _schema(connection: ServerConnection, url: str) -> Finding:
    steps = shipped()
    found, newest = found_schema(connection, str(ConnectionTarget(url)), steps), steps[-1].number
    if found < newest:
        detail = f"{found}; the newest is {newest}" if found else "there is no store yet"
        return Finding(about="schema", level="note", detail=detail, hint="Run `backstay migrate`.", repair="migrate")
    return Finding(about="schema", level="fine", detail=str(found))


def _privileges(connection: ServerConnection) -> Finding:
    row = connection.execute(_MAY_WRITE.encode(), (BACKSTAY_TABLES,)).fetchone()
    if row is None or not row[0]:
        return Finding(
            about="permissions",
            level="wrong",
            detail="this role lacks rights on some tables",
            hint="Grant SELECT, INSERT, UPDATE and DELETE on the tables, and SELECT and USAGE on the sequence.",
        )
    return Finding(about="permissions", level="fine", detail="this role can read and write every table")


def _indexes(connection: ServerConnection) -> Iterator[Finding]:
    broken = [row[0] for row in connection.execute(_BROKEN.encode(), (BACKSTAY_TABLES,)).fetchall()]
    if broken:
        yield Finding(
            about="integrity",
            level="wrong",
            detail=f"indexes that PostgreSQL marks as invalid: {', '.join(broken)}",
            hint="Run REINDEX on them.",
        )
    else:
        yield Finding(about="integrity", level="fine", detail="no index is invalid (pg_amcheck checks the pages)")


def _inside(connection: ServerConnection, *, quick: bool, progress: ProgressCallback) -> Iterator[Finding]:
    clock, time = SystemClock(), ServerTime(None)
    row = connection.execute(_NOW).fetchone()
    time.set_server_time(row[0] if row else clock.now())
    setting = PostgresSettings(
        time=time,
        watch=LeaseWatch(time),
        ids=IdSource(clock),
        limits=Limits(),
        worker=WorkerId("doctor"),
        lease_ms=0,
        host=machine,
    )
    try:
        yield from examine(ReadingTransaction(Pipeline(connection), reading(), setting), quick=quick, progress=progress)
    finally:
        connection.roll_back()
