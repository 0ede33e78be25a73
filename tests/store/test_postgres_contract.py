"""The contract on a real PostgreSQL server."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from backstay.store import Store, open_store
from backstay.testing import ManualClock
from tests.contract import OpenHandle, StoreContract
from tests.databases import with_empty_store
from tests.effort import tries


class TestPostgres(StoreContract):
    """Every fact of the contract."""

    # A write takes a round trip to the server: only a thorough run makes windows as long as on SQLite.
    pieces = tries(50, 200, 200)

    @pytest.fixture
    def open_handle(self, empty_database: str) -> OpenHandle:
        return partial(open_store, empty_database)

    @pytest.fixture
    def elsewhere(self, tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
        with open_store(with_empty_store(tmp_path / "elsewhere.db"), clock=clock) as store:
            yield store
