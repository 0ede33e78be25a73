"""A Ctrl-C before COMMIT undoes the transaction; a later one is raised when the result is known."""

import signal
import subprocess
import sys

import psycopg
import pytest

from backstay import open_store
from tests.postgres.acknowledged_writer import ME, PATIENCE
from tests.postgres_servers.postgres import Postgres

PROGRAM = """
import signal, sys
from backstay import open_store

signal.signal(signal.SIGINT, signal.default_int_handler)
with open_store(sys.argv[1]) as store:
    try:
        store.rename(sys.argv[2], "renamed", owner="me")
    except KeyboardInterrupt:
        print("interrupted", store.session(sys.argv[2], owner="me").title)
    print("goes on", store.pin(sys.argv[2], True, owner="me").pinned)
"""
# A rename waits for a lock: at once, or when it commits.
WAIT = """
CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(42);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER wait AFTER UPDATE ON sessions DEFERRABLE INITIALLY {when}
FOR EACH ROW WHEN (NEW.title IS DISTINCT FROM OLD.title) EXECUTE FUNCTION wait();
"""
AWAIT_WAITING = """
DO $$
BEGIN
    WHILE NOT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'advisory' AND objid = 42) LOOP
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$
"""


@pytest.mark.parametrize(("when", "title"), [("IMMEDIATE", "None"), ("DEFERRED", "renamed")])
def test_a_ctrl_c_leaves_nothing_undecided(postgres: Postgres, name: str, when: str, title: str) -> None:
    url = postgres.url(name)
    with open_store(url) as store:
        session = store.create(owner=ME).id
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(WAIT.format(when=when).encode())
        connection.execute("SELECT pg_advisory_lock(42)")
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, url, session],
            stdout=subprocess.PIPE,
            text=True,
        )
        with program:
            postgres.query(AWAIT_WAITING, database=name)
            program.send_signal(signal.SIGINT)
            if when == "DEFERRED":
                # A cancellation would have arrived before so many statements.
                for _ in range(40):
                    postgres.query("SELECT 1")
                connection.execute("SELECT pg_advisory_unlock(42)")
            said, _ = program.communicate(timeout=PATIENCE)

    assert said.splitlines() == [f"interrupted {title}", "goes on True"]
    assert program.returncode == 0
