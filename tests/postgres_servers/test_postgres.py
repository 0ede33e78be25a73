"""The servers of the tests: real, durable, a separate database for each test, and never left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.postgres_servers.daemon import PATIENCE, ServerFailed
from tests.postgres_servers.postgres import Home, Postgres, at

ABANDON = """
import sys
from tests.postgres_servers.postgres import Home, Postgres, at
home = Home()
port = Postgres(home).port if "served" in sys.argv else 1
print(home.path, port, flush=True)
sys.stdin.read()
"""


def test_the_server_syncs_its_commits(postgres: Postgres) -> None:
    assert postgres.query("SELECT current_setting('fsync'), current_setting('synchronous_commit')") == [("on", "on")]


def test_each_test_has_a_database_of_its_own(postgres: Postgres) -> None:
    template = postgres.template("with_a_table", _make_a_table)
    one, other = postgres.database(template), postgres.database(template)

    postgres.query("INSERT INTO things VALUES (1)", database=one)

    assert postgres.query("SELECT count(*) FROM things", database=other) == [(0,)]
    for name in (one, other):
        postgres.drop(name)


def test_a_killed_server_comes_back_with_all_it_committed(postgres_home: Home) -> None:
    with Postgres(postgres_home) as server:
        _make_a_table(server.url())
        server.query("INSERT INTO things VALUES (1)")
        port = server.port

        server.kill()
        with pytest.raises(psycopg.OperationalError):
            server.query("SELECT 1")
        server.start()

        assert server.port == port
        assert server.query("SELECT * FROM things") == [(1,)]


def test_a_server_that_cannot_start_reports_the_reason(postgres_home: Home) -> None:
    with pytest.raises(ServerFailed, match="no_such_setting"):
        Postgres(postgres_home, settings={"no_such_setting": "1"})


@pytest.mark.parametrize("when", ["served", "begun"])
def test_a_test_run_that_is_killed_leaves_no_server_and_no_files_behind(when: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ABANDON, when],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        home, port = run.stdout.readline().split()
        assert Path(home).is_dir()

        os.kill(run.pid, signal.SIGKILL)
        # The watchdog of its servers and files has inherited the error stream: it ends when all are gone.
        run.communicate(timeout=PATIENCE)

    assert not Path(home).exists()
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(at(int(port), "postgres"))


def _make_a_table(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE things (number int)")
