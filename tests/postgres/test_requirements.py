"""Servers and settings that Backstay rejects, with its errors."""

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import LiteralString

import psycopg
import pytest

from backstay import BackstayError, open_store
from backstay.errors import ConfigError, StoreReadOnly, StoreUnavailable
from backstay.model import message
from backstay.store.database_upkeep import checkup
from tests.postgres.acknowledged_writer import ME, retry_while_leased
from tests.postgres_servers.faulty_proxy import Proxy
from tests.postgres_servers.postgres import Home, Postgres, at
from tests.touching import touch

# An interpreter in which the driver seems not to be installed.
WITHOUT_THE_EXTRA = """
import sys
sys.modules["psycopg"] = sys.modules["psycopg_pool"] = None
import backstay
try:
    backstay.open_store("postgresql://127.0.0.1:1/none")
except backstay.BackstayError as error:
    print(type(error).__name__, error)
"""

# A program without logging configuration, whose connections are cut by the server.
CUT_OFF = """
import sys
import backstay
import psycopg
url = sys.argv[1]
with backstay.open_store(url) as store, psycopg.connect(url, autocommit=True) as server:
    session = store.create(owner="me").id
    server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                   " AND pid <> pg_backend_pid()")
    print(store.pin(session, True, owner="me").pinned)
"""


def test_a_server_that_does_not_sync_is_refused(postgres_home: Home) -> None:
    with (
        Postgres(postgres_home, settings={"fsync": "off"}) as careless,
        pytest.raises(BackstayError, match="fsync"),
    ):
        open_store(careless.url())


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "EUC_JP"])
def test_a_database_that_cannot_hold_every_text_is_refused(postgres: Postgres, encoding: str) -> None:
    name = f"in_{encoding.lower()}"
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'".encode())
        try:
            with pytest.raises(ConfigError, match=encoding) as refused:
                open_store(postgres.url(name))
        finally:
            postgres.drop(name)
    assert "UTF8" in refused.value.hint


def test_all_text_is_stored_under_other_client_encodings(
    postgres: Postgres, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET client_encoding = 'LATIN1'".encode())
    monkeypatch.setenv("PGCLIENTENCODING", "SQL_ASCII")

    with open_store(postgres.url(name)) as store:
        session = store.create(owner=ME).id
        store.record(session, [message.user("żółw 亀 🐢")], owner=ME)
        assert store.messages(session, owner=ME).messages[0].text == "żółw 亀 🐢"


def test_a_schema_that_is_not_there_must_be_made_first(postgres: Postgres, name: str) -> None:
    url = postgres.url(name, options="-csearch_path=nowhere")
    with pytest.raises(ConfigError, match="schema") as refused:
        open_store(url)
    assert "CREATE SCHEMA" in refused.value.hint

    postgres.query("CREATE SCHEMA nowhere", database=name)
    with open_store(url) as store:
        assert store.create(owner=ME).state == "open"


# The privileges that a role gets, one after the other, until it has all of them.
RIGHTS: list[LiteralString] = [
    "GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest",
    "GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO guest",
    "GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO guest",
    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO guest",
]


def test_an_error_names_the_missing_privileges_of_a_role(postgres: Postgres, name: str) -> None:
    postgres.query("CREATE ROLE guest LOGIN")
    postgres.query("REVOKE CREATE ON SCHEMA public FROM PUBLIC", database=name)
    url = postgres.url(name).replace("backstay@", "guest@")
    try:
        with pytest.raises(StoreReadOnly, match="schema") as refused:
            open_store(url)
        assert "CREATE" in refused.value.hint

        open_store(postgres.url(name)).close()
        seen = []
        for right in RIGHTS:
            postgres.query(right, database=name)
            seen.append(
                [
                    finding.level
                    for finding in checkup(url, quick=True, progress=_nobody)
                    if finding.about == "permissions"
                ]
            )
        assert seen == [["wrong"], ["wrong"], ["wrong"], ["fine"]]
        with open_store(url) as store:
            store.record(store.create(owner=ME).id, [message.user("at last")], owner=ME)
            assert store.search("last", owner=ME).hits
    finally:
        postgres.query("DROP OWNED BY guest", database=name)
        postgres.query("DROP ROLE guest")


def _nobody(step: str, done: int, total: int) -> None:
    """There is no observer of the progress."""


def test_a_server_that_cannot_be_reached_is_looked_for_where_it_should_be(postgres: Postgres, name: str) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with pytest.raises(StoreUnavailable) as away:
            open_store(at(nobody.getsockname()[1], name))
    for cause in ("runs", "host", "port", "firewall", "password"):
        assert cause in away.value.hint
    assert "disk" not in str(away.value)

    with pytest.raises(StoreUnavailable, match="no_such_database") as nowhere:
        open_store(postgres.url("no_such_database"))
    assert "database" in nowhere.value.hint


@pytest.mark.parametrize("size", ["", "0", "1", "-4", "many", "1e3", "1001"])
def test_an_invalid_pool_size_is_rejected(postgres: Postgres, name: str, size: str) -> None:
    with pytest.raises(ConfigError, match="connections") as refused:
        open_store(postgres.url(name, connections=size))
    assert "2 to 1000" in refused.value.hint


def test_the_url_sets_the_size_of_the_pool(postgres: Postgres, name: str) -> None:
    with (
        open_store(postgres.url(name, connections="3", application_name="counted")) as store,
        ThreadPoolExecutor(12) as threads,
    ):
        sessions = [store.create(owner=ME).id for _ in range(12)]
        list(threads.map(lambda session: [touch(store, session, owner=ME) for _ in range(5)], sessions))

        open_now = postgres.query("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'counted'")
        assert 2 <= open_now[0][0] <= 3
        assert store.list(owner=ME).sessions[0].activity == 5


def test_without_the_extra_it_says_what_to_install() -> None:
    said = subprocess.run([sys.executable, "-c", WITHOUT_THE_EXTRA], capture_output=True, text=True, check=True).stdout

    assert said.startswith("ConfigError")
    assert "backstay[postgres]" in said


def test_a_lost_connection_prints_nothing_in_a_program_without_logging(postgres: Postgres, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CUT_OFF, postgres.url(name)], capture_output=True, text=True, check=True
    )

    assert (done.stdout, done.stderr) == ("True\n", "")


def test_errors_distinguish_an_unreachable_server_from_a_full_pool(network: Proxy, name: str) -> None:
    with open_store(network.url(name), wait_seconds=3.0) as store:
        session = retry_while_leased(store.create, owner=ME).id
        network.stall()
        network.cut()

        with pytest.raises(StoreUnavailable, match="could not connect") as away:
            touch(store, session, owner=ME)
        network.go_on()

    assert "host" in away.value.hint
    assert "connections=" not in away.value.hint
