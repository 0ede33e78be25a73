"""The contract on a real PostgreSQL server."""

from functools import partial

import pytest

from backstay.store import open_store
from backstay.testing.contract import OpenHandle, StoreContract


class TestPostgres(StoreContract):
    """Every fact of the contract."""

    @pytest.fixture
    def open_handle(self, empty_database: str) -> OpenHandle:
        return partial(open_store, empty_database)
