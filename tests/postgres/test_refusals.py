"""What Backstay refuses to work with, and how it says so."""

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from backstay import BackstayError, open_store
from backstay.errors import ConfigError, StoreUnavailable
from tests.postgres.speaker import ME
from tests.servers.postgres import Home, Postgres, at

# An interpreter in which the driver is not installed, as far as anybody can tell.
WITHOUT_THE_EXTRA = """
import sys
sys.modules["psycopg"] = sys.modules["psycopg_pool"] = None
import backstay
try:
    backstay.open_store("postgresql://127.0.0.1:1/none")
except backstay.BackstayError as error:
    print(type(error).__name__, error)
"""


def test_a_server_that_does_not_sync_is_refused(postgres_home: Home) -> None:
    with (
        Postgres(postgres_home, settings={"fsync": "off"}) as careless,
        pytest.raises(BackstayError, match="fsync"),
    ):
        open_store(careless.url())


def test_a_server_that_cannot_be_reached_is_looked_for_where_it_should_be(postgres: Postgres, name: str) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with pytest.raises(StoreUnavailable) as away:
            open_store(at(nobody.getsockname()[1], name))
    for cause in ("runs", "host", "port", "firewall", "password"):
        assert cause in away.value.advice
    assert "disk" not in str(away.value)

    with pytest.raises(StoreUnavailable, match="no_such_database") as nowhere:
        open_store(postgres.url("no_such_database"))
    assert "database" in nowhere.value.advice


@pytest.mark.parametrize("size", ["", "0", "1", "-4", "many", "1e3", "1001"])
def test_a_pool_of_a_nonsensical_size_is_refused(postgres: Postgres, name: str, size: str) -> None:
    with pytest.raises(ConfigError, match="connections") as refused:
        open_store(postgres.url(name, connections=size))
    assert "2 to 1000" in refused.value.advice


def test_a_pool_is_as_large_as_its_url_says(postgres: Postgres, name: str) -> None:
    with (
        open_store(postgres.url(name, connections="3", application_name="counted")) as store,
        ThreadPoolExecutor(12) as threads,
    ):
        sessions = [store.create(owner=ME).id for _ in range(12)]
        list(threads.map(lambda session: [store.touch(session, owner=ME) for _ in range(5)], sessions))

        open_now = postgres.query("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'counted'")
        assert 2 <= open_now[0][0] <= 3
        assert store.list(owner=ME).sessions[0].activity == 5


def test_without_the_extra_it_says_what_to_install() -> None:
    said = subprocess.run([sys.executable, "-c", WITHOUT_THE_EXTRA], capture_output=True, text=True, check=True).stdout

    assert said.startswith("ConfigError")
    assert "backstay[postgres]" in said
