"""The steps of a schema's history, as they are shipped."""

from collections.abc import Sequence

import pytest

from backstay.store.postgres.migrations import shipped as shipped_for_postgres
from backstay.store.sqlite.migrations import shipped as shipped_for_sqlite


@pytest.mark.parametrize(
    "numbers",
    [[step.number for step in shipped_for_sqlite()], [step.number for step in shipped_for_postgres()]],
    ids=["sqlite", "postgres"],
)
def test_every_migration_has_a_number_of_its_own_and_none_is_missing(numbers: Sequence[int]) -> None:
    assert list(numbers) == list(range(1, len(numbers) + 1))
