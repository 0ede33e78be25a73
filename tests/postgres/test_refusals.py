"""What Backstay refuses to work with, and how it says so."""

import subprocess
import sys

import pytest

from backstay import BackstayError, open_store
from tests.servers.postgres import Home, Postgres

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


def test_without_the_extra_it_says_what_to_install() -> None:
    said = subprocess.run([sys.executable, "-c", WITHOUT_THE_EXTRA], capture_output=True, text=True, check=True).stdout

    assert said.startswith("ConfigError")
    assert "backstay[postgres]" in said
