"""The contract, kept by SQLite."""

from collections import Counter
from pathlib import Path

import pytest

from backstay.clock import Clock
from backstay.model.limits import Limits
from backstay.store import Store, open_store
from backstay.testing.contract import OpenHandle, StoreContract


class TestSqlite(StoreContract):
    """Every fact, on a file of its own."""

    @pytest.fixture
    def open_handle(self, tmp_path: Path) -> OpenHandle:
        def open_handle(*, clock: Clock, lease_seconds: float, limits: Limits) -> Store:
            return open_store(tmp_path / "store.db", clock=clock, lease_seconds=lease_seconds, limits=limits)

        return open_handle


def test_no_two_parts_of_the_contract_state_a_fact_under_one_name() -> None:
    facts = Counter(name for part in StoreContract.__mro__ for name in vars(part) if name.startswith("test_"))

    assert [name for name, times in facts.items() if times > 1] == []
