"""A checkup of a PostgreSQL database: the server, the schema, and what is in it. Changes nothing."""

from collections.abc import Iterator

from backstay.clock import SystemClock
from backstay.errors import BackstayError, StoreArriving
from backstay.model.ids import IdSource, WorkerId
from backstay.model.limits import Limits
from backstay.model.upkeep import Finding, Tell
from backstay.store.postgres.conninfo import Place
from backstay.store.postgres.database import Database
from backstay.store.postgres.migrations import found_schema, shipped
from backstay.store.postgres.servertime import ServerTime
from backstay.store.postgres.statements import reading
from backstay.store.postgres.transaction import ReadingTransaction, Setting
from backstay.store.postgres.upkeep import OUR_TABLES, connected, room
from backstay.store.postgres.wire import Wire
from backstay.store.soundness import RESTORE, examine

_NOW = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"
_BROKEN = """
SELECT c.relname FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_class t ON t.oid = i.indrelid JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
WHERE NOT i.indisvalid AND n.nspname = ANY (current_schemas(false)) AND t.relname = ANY (%s)
"""
# Asked about several rights at once, the server says whether there is one of them.
_MAY_WRITE = """
SELECT bool_and(has_table_privilege(name, may)) AND bool_and(has_sequence_privilege('keys', may_count))
FROM unnest(%s::text[]) name, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) may,
    unnest(ARRAY['SELECT', 'USAGE']) may_count
"""


def checkup(url: str, *, quick: bool, tell: Tell) -> Iterator[Finding]:
    """Look at one thing after the other, as far as each can still be looked at."""
    about = "server"
    try:
        with connected(url) as wire:
            yield Finding(
                about="server", level="fine", said=f"PostgreSQL {wire.version // 10_000}.{wire.version % 10_000}"
            )
            about = "schema"
            schema = _schema(wire, url)
            yield schema
            if schema.mend is not None:
                return
            about = "integrity"
            yield _privileges(wire)
            yield from _indexes(wire)
            yield Finding(about="room", level="fine", said=f"{room(url).size >> 10:,} KiB of tables and indexes")
            yield from _inside(wire, quick=quick, tell=tell)
    except StoreArriving as error:
        yield Finding(about=about, level="wrong", said=str(error.args[0]), advice="Run `backstay move` again.")
    except BackstayError as error:
        yield Finding(about=about, level="wrong", said=str(error.args[0]), advice=error.advice or RESTORE)


def _schema(wire: Wire, url: str) -> Finding:
    steps = shipped()
    found, newest = found_schema(wire, str(Place(url)), steps), steps[-1].number
    if found < newest:
        said = f"{found}; the newest is {newest}" if found else "there is no store yet"
        return Finding(about="schema", level="note", said=said, advice="Run `backstay migrate`.", mend="migrate")
    return Finding(about="schema", level="fine", said=str(found))


def _privileges(wire: Wire) -> Finding:
    row = wire.execute(_MAY_WRITE.encode(), (OUR_TABLES,)).fetchone()
    if row is None or not row[0]:
        return Finding(
            about="permissions",
            level="wrong",
            said="this role may not read and write every table",
            advice="Grant SELECT, INSERT, UPDATE and DELETE on them, SELECT and USAGE on the sequence.",
        )
    return Finding(about="permissions", level="fine", said="every table may be read and written")


def _indexes(wire: Wire) -> Iterator[Finding]:
    broken = [row[0] for row in wire.execute(_BROKEN.encode(), (OUR_TABLES,)).fetchall()]
    if broken:
        yield Finding(
            about="integrity",
            level="wrong",
            said=f"indexes that the server itself calls invalid: {', '.join(broken)}",
            advice="Run REINDEX on them.",
        )
    else:
        yield Finding(
            about="integrity", level="fine", said="no index is invalid (pages are the server's: see pg_amcheck)"
        )


def _inside(wire: Wire, *, quick: bool, tell: Tell) -> Iterator[Finding]:
    clock, time = SystemClock(), ServerTime(None)
    row = wire.execute(_NOW).fetchone()
    time.heard(row[0] if row else clock.now())
    setting = Setting(time=time, ids=IdSource(clock), limits=Limits(), worker=WorkerId("doctor"), lease_ms=0)
    with wire.cursor() as cursor:
        try:
            tx = ReadingTransaction(cursor, reading(), setting, Database.begin_reading)
            yield from examine(tx, quick=quick, tell=tell)
        finally:
            wire.roll_back()
