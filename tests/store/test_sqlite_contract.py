"""The contract, kept by SQLite."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from backstay.model.turn import Interrupted
from backstay.store import Store, open_store
from backstay.testing import ManualClock
from tests.contract import OpenHandle, StoreContract
from tests.contract.base import OpenAnother
from tests.contract.builders import ME, room, start
from tests.databases import with_empty_store


class TestSqlite(StoreContract):
    """Every fact, on a file of its own."""

    @pytest.fixture
    def open_handle(self, tmp_path: Path) -> OpenHandle:
        return partial(open_store, with_empty_store(tmp_path / "store.db"))

    @pytest.fixture
    def elsewhere(self, tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
        with open_store(with_empty_store(tmp_path / "elsewhere.db"), clock=clock) as store:
            yield store

    def test_a_lease_from_before_a_restart_of_the_machine_is_dead_at_once(
        self, open_another: OpenAnother, store: Store, clock: ManualClock
    ) -> None:
        gone = start(open_another(), room())

        clock.reboot()

        assert store.session(gone.session, owner=ME).running is None
        assert isinstance(store.turn(gone.id, owner=ME).outcome, Interrupted)


def test_no_two_parts_of_the_contract_state_a_fact_under_one_name() -> None:
    facts = Counter(name for part in StoreContract.__mro__ for name in vars(part) if name.startswith("test_"))

    assert [name for name, times in facts.items() if times > 1] == []
