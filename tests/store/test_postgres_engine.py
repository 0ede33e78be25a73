"""Effects of a database server on a store: commits that become visible out of order, and foreign databases."""

import os
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psycopg
import pytest

from backstay import Store, open_store
from backstay.clock import SystemClock
from backstay.errors import BackstayError, ConfigError, SchemaMismatch, StoreUnavailable, UsedAfterFork
from backstay.model import message
from backstay.model.event import SessionCreated, SessionDeleted, SessionRenamed
from backstay.model.limits import Limits
from backstay.model.turn import Completed
from backstay.store.postgres.conninfo import ConnectionTarget
from backstay.store.postgres.engine import PostgresEngine
from backstay.store.postgres.migrations import PostgresMigration, shipped
from backstay.testing import ManualClock
from tests.crash.worker_processes import PATIENCE, PROCESSES
from tests.postgres_servers.postgres import Postgres
from tests.touching import touch

ME = "me"
DAY = 86_400


@pytest.fixture
def store(empty_database: str) -> Iterator[Store]:
    """A store that waits for a lock as long as a test holds it, also on a busy machine."""
    with open_store(empty_database, wait_seconds=PATIENCE) as store:
        yield store


def open_with(url: str, steps: list[PostgresMigration], wait_seconds: float = 10) -> PostgresEngine:
    """The database as a version of Backstay with these migrations opens it."""
    return PostgresEngine(
        url, clock=SystemClock(), limits=Limits(), lease_seconds=30, wait_seconds=wait_seconds, steps=tuple(steps)
    )


# --- order ----------------------------------------------------------------------------------------------------------


def test_a_follower_of_all_sessions_waits_for_an_event_that_commits_late(store: Store, empty_database: str) -> None:
    slow, quick = store.create(owner=ME).id, store.create(owner=ME).id
    start = store.feed(None, owner=ME).next
    with psycopg.connect(empty_database) as obstacle, ThreadPoolExecutor(1) as thread:
        # A deletion has written its event when it waits for forks of the same owner.
        obstacle.execute("SELECT pg_advisory_xact_lock_shared(1113815382, hashtext(%s))", (ME,))
        deleting = thread.submit(store.delete, slow, owner=ME)
        _wait_until_somebody_waits(empty_database)
        store.rename(quick, "quick", owner=ME)

        meanwhile = store.feed(start, owner=ME)
        from_now_on = store.feed(None, owner=ME)
        obstacle.commit()
        deleting.result(PATIENCE)

    assert meanwhile.events == ()
    assert meanwhile.next == from_now_on.next == start
    told = store.feed(start, owner=ME).events
    assert [type(each.event.body) for each in told] == [SessionDeleted, SessionRenamed]


def test_the_search_index_waits_for_a_message_that_commits_late(store: Store, empty_database: str) -> None:
    session = store.create(owner=ME).id
    with psycopg.connect(empty_database) as slow:
        # A writer that announced itself, took its keys, and has not committed yet.
        slow.execute("SELECT pg_advisory_xact_lock_shared('keys'::regclass::oid::int, last_value::int) FROM keys")
        slow.execute("SELECT nextval('keys')")
        store.record(session, [message.user("a quick fox")], owner=ME)

        behind = store.search("fox", owner=ME)
        slow.commit()
        caught_up = store.search("fox", owner=ME)

    assert (behind.hits, behind.lag) == ((), 1)
    assert (len(caught_up.hits), caught_up.lag) == (1, 0)


def test_a_store_waits_for_no_writer_of_another_store_in_the_same_database(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA one; CREATE SCHEMA other")
    one, other = (f"{database}?options=-csearch_path%3D{schema}" for schema in ("one", "other"))
    with open_store(one) as store, open_store(other) as elsewhere, psycopg.connect(database) as obstacle:
        session, slow = store.create(owner=ME).id, elsewhere.create(owner=ME).id
        store.record(session, [message.user("a slow fox")], owner=ME)
        end = store.feed(None, owner=ME).next
        with ThreadPoolExecutor(1) as thread:
            obstacle.execute("SELECT pg_advisory_xact_lock_shared(1113815382, hashtext(%s))", (ME,))
            deleting = thread.submit(elsewhere.delete, slow, owner=ME)
            _wait_until_somebody_waits(database)

            from_now_on = store.feed(None, owner=ME).next
            store.record(session, [message.user("a quick fox")], owner=ME)
            told, found = store.feed(end, owner=ME).events, store.search("fox", owner=ME)
            obstacle.commit()
            deleting.result(PATIENCE)

    assert from_now_on == end
    assert told
    assert (len(found.hits), found.lag) == (2, 0)


def _wait_until_somebody_waits(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(int(PATIENCE * 20)):
            if connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'advisory'").fetchone():
                return
            threading.Event().wait(0.05)
    raise AssertionError("nobody waits for the lock")


# --- registered workers ---------------------------------------------------------------------------------------------


def test_a_worker_silent_for_two_days_is_forgotten_unless_it_holds_a_session(empty_database: str) -> None:
    clock = ManualClock()
    with open_store(empty_database, clock=clock) as keeper:
        idle, busy = (open_store(empty_database, clock=clock, lease_seconds=10 * DAY) for _ in range(2))
        for store in (idle, busy):
            session = store.create(owner=ME).id
            opened = store.submit(session, "hello", owner=ME, start=True).opened
            assert opened is not None
            if store is idle:
                store.finish(opened, Completed())
        seen = [keeper.about().workers]
        for _ in range(2):
            clock.advance(DAY + 1)
            keeper.collect()
            seen.append(keeper.about().workers)
        # It was not gone, only idle.
        idle.submit(idle.create(owner=ME).id, "again", owner=ME, start=True)
        keeper.collect()
        seen.append(keeper.about().workers)
        idle.close()
        busy.close()

        assert seen == [2, 2, 1, 2]
        assert keeper.about().workers == 0


def test_a_transaction_mark_is_deleted_when_it_can_no_longer_be_needed(store: Store, empty_database: str) -> None:
    session = store.create(owner=ME).id
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("INSERT INTO commits (writer, number, at) VALUES ('wrk_dead.1', 7, 0)")

        store.collect()

        left = connection.execute("SELECT count(*), count(*) FILTER (WHERE writer = 'wrk_dead.1') FROM commits")
        marks, dead = left.fetchone() or (0, 0)
    assert (marks > 0, dead) == (True, 0)
    assert touch(store, session, owner=ME).activity == 1


# --- foreign databases ----------------------------------------------------------------------------------------------


def test_a_database_of_a_newer_version_is_refused_and_left_alone(database: str) -> None:
    newest = shipped()[-1].number
    open_with(database, [*shipped(), PostgresMigration(newest + 1, "later.sql", "CREATE TABLE later ()")]).close()

    with pytest.raises(SchemaMismatch, match=f"schema {newest + 1}"):
        open_store(database)


def test_a_database_is_brought_to_the_newest_schema(database: str) -> None:
    open_with(database, list(shipped())).close()
    later = PostgresMigration(shipped()[-1].number + 1, "later.sql", "CREATE TABLE later ()")

    engine = open_with(database, [*shipped(), later])

    assert engine.about(0).schema == later.number
    engine.close()


def test_a_migration_may_take_longer_than_any_verb(database: str) -> None:
    open_with(database, list(shipped())).close()
    slow = PostgresMigration(shipped()[-1].number + 1, "slow.sql", "SELECT pg_sleep(4)")

    open_with(database, [*shipped(), slow], wait_seconds=3.0).close()

    with psycopg.connect(database) as connection:
        newest = connection.execute("SELECT max(number) FROM backstay_schema").fetchone()
    assert newest == (slow.number,)


def test_a_migration_that_fails_leaves_nothing_behind(database: str, postgres: Postgres) -> None:
    broken = PostgresMigration(shipped()[-1].number + 1, "broken.sql", "CREATE TABLE later (); SELECT 1 / 0")

    with pytest.raises(SchemaMismatch, match=r"broken\.sql"):
        open_with(database, [*shipped(), broken])

    with psycopg.connect(database) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
    assert tables == (0,)


def test_a_database_of_another_program_is_refused_and_left_alone(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE sessions (theirs text)")

        with pytest.raises(SchemaMismatch, match="another program"):
            open_store(database)

        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    assert tables == [("sessions",)]


def test_other_tables_in_the_same_database_have_no_effect(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE invoices (theirs text)")

    with open_store(database) as store:
        assert store.create(owner=ME).state == "open"


# --- timeouts -------------------------------------------------------------------------------------------------------


def test_a_wait_longer_than_the_server_supports_is_accepted(empty_database: str) -> None:
    with open_store(empty_database, wait_seconds=30 * DAY) as store:
        assert store.create(owner=ME).state == "open"


# --- error messages -------------------------------------------------------------------------------------------------


def test_a_password_is_never_shown(empty_database: str) -> None:
    secret = empty_database.replace("backstay@", "backstay:hunter2@")
    with open_store(secret) as store:
        assert "hunter2" not in store.about().url
        assert store.about().engine == "PostgreSQL"

    with pytest.raises(StoreUnavailable, match="nowhere") as refused:
        open_store(secret.rpartition("/")[0] + "/nowhere")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2%zz@localhost/chat",
        "postgresql://me:hunter2%00@localhost/chat",
        "postgresql://me:hunter2 and 3@localhost/chat",
        "postgresql://me:1@hunter2@localhost/chat",
        "postgresql://me:hunter2/1@localhost/chat",
        "postgresql://me:1/hunter2@localhost/chat",
        "postgresql://me:1?@hunter2@localhost/chat",
        "postgresql://me:hunter2\udc80@localhost/chat",
        "postgresql://localhost/chat?password=hunter2%zz",
        "postgresql://localhost/chat?password=1&hunter2",
        "postgresql+psycopg://me:hunter2@localhost/chat",
        "PostgreSQL://me:hunter2@localhost/chat",
        " postgresql://me:hunter2@localhost/chat",
        Path("postgresql://me:hunter2@localhost/chat"),
        "host=localhost password=hunter2 dbname=chat",
        "dbname = chat password = hunter2",
        "password=hunter2 host=localhost",
    ],
)
def test_an_invalid_url_does_not_reveal_its_password(
    url: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Partly valid URLs: an older libpq connects, to a port without a server.
    with pytest.raises((ConfigError, StoreUnavailable)) as refused:
        open_store(url)

    assert refused.value.hint
    assert "hunter2" not in "".join(traceback.format_exception(refused.value, limit=0))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "secret", ["password", "sslpassword", "passfile", "scram_client_key", "scram_server_key", "oauth_client_secret"]
)
def test_no_secret_of_a_url_is_shown(secret: str) -> None:
    assert "hunter2" not in _shown(f"postgresql://localhost/chat?{secret}=hunter2")


def _shown(url: str) -> str:
    """The displayed form of a URL, or the error of an older libpq that does not support all of it."""
    try:
        return ConnectionTarget(url).shown
    except ConfigError as unknown:
        return str(unknown)


def test_a_url_that_cannot_be_read_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        open_store("postgresql://host/db?no_such_option=1")


def test_a_handle_that_was_opened_before_a_fork_is_refused_in_the_child(empty_database: str) -> None:
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=use_after_fork, args=(empty_database, theirs))
    process.start()

    assert ours.poll(PATIENCE)
    assert ours.recv() == (UsedAfterFork.__name__, [SessionCreated.__name__])
    process.join(PATIENCE)


def use_after_fork(url: str, pipe: "Connection[Any, Any]") -> None:
    """Fork with an open store; returns the errors of the child, and what the parent can still do."""
    with open_store(url) as store:
        session = store.create(owner=ME).id
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                store.create(owner=ME)
            except BackstayError as error:
                os.write(writing, type(error).__name__.encode())
            os._exit(0)
        os.waitpid(child, 0)
        story = [type(event.body).__name__ for event in store.events_after(session, owner=ME).events]
        pipe.send((os.read(reading, 100).decode(), story))
