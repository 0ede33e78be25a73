"""Fixtures of the tests of the store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.documents.exports import ExportContract
from tests.contract.invalid_input import InputContract
from tests.crash.worker_processes import WorkerProcesses
from tests.effort import sample

# Their cases differ in values that engine-independent code reads or rejects. SQLite runs every case.
_SAMPLED = frozenset(vars(InputContract)) | frozenset(vars(ExportContract))
_FEW = 4


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On PostgreSQL, keep a sample of the cases of such a fact; `make crash` runs all of them."""
    cases: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.cls is not None and item.cls.__name__ == "TestPostgres":
            cases.setdefault(item.originalname, []).append(item)
    sampled = [fact for name, fact in cases.items() if name in _SAMPLED]
    kept = {case for number, fact in enumerate(sampled) for case in sample(fact, _FEW, first=number)}
    left_out = [case for fact in sampled for case in fact if case not in kept]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = frozenset(left_out)
        items[:] = [item for item in items if item not in gone]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a database that does not exist yet, nor does its folder."""
    return tmp_path / "home" / "store.db"


@pytest.fixture(scope="session")
def other() -> Iterator[WorkerProcesses]:
    """Another process."""
    with WorkerProcesses(1) as workers:
        yield workers
