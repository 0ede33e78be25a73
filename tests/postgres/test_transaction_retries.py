"""Transactions that PostgreSQL aborts for a retry are repeated whole; the caller does not notice."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from backstay import Store, open_store
from backstay.model import message as m
from tests.postgres.acknowledged_writer import ME, PATIENCE
from tests.postgres_servers.postgres import Postgres, at

STUMBLE = """
CREATE SEQUENCE stumbles;
CREATE FUNCTION stumble() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('stumbles') <= 3 THEN
        RAISE EXCEPTION 'try again' USING ERRCODE = TG_ARGV[0];
    END IF;
    RETURN NEW;
END $$;
"""
AWAIT_WAITING = """
DO $$
BEGIN
    WHILE NOT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'events'::regclass) LOOP
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$
"""


@pytest.fixture
def store(name: str, server_port: int) -> Iterator[Store]:
    with open_store(at(server_port, name)) as store:
        yield store


@pytest.mark.parametrize("code", ["40001", "40P01"])
def test_a_transaction_that_is_to_be_tried_again_is_repeated_whole(
    postgres: Postgres, name: str, store: Store, code: str
) -> None:
    session = store.create(owner=ME).id
    with psycopg.connect(postgres.url(name), autocommit=True) as connection:
        connection.execute(STUMBLE)
        connection.execute(
            f"CREATE TRIGGER stumble BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION stumble('{code}')".encode()
        )

    store.record(session, [m.user("once")], owner=ME)

    assert [message.text for message in store.messages(session, owner=ME).messages] == ["once"]
    ((stumbles,),) = postgres.query("SELECT last_value FROM stumbles", database=name)
    assert stumbles > 3


def test_a_deadlock_with_a_foreign_transaction_is_retried(postgres: Postgres, name: str, store: Store) -> None:
    session = store.create(owner=ME).id
    with (
        psycopg.connect(postgres.url(name)) as stranger,
        ThreadPoolExecutor() as threads,
    ):
        # The other client waits, so the transaction of the store is the one that is aborted.
        stranger.execute("SET LOCAL deadlock_timeout = '60s'")
        stranger.execute("LOCK TABLE events IN EXCLUSIVE MODE")
        writing = threads.submit(store.record, session, [m.user("once")], owner=ME)
        postgres.query(AWAIT_WAITING, database=name)
        stranger.execute("SELECT FROM sessions WHERE id = %s FOR UPDATE", (session,))
        stranger.commit()
        writing.result(PATIENCE)

    assert [message.text for message in store.messages(session, owner=ME).messages] == ["once"]
