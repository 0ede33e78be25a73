"""How long the crash suite runs, and where: `make crash` asks for many more rounds than `make test`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.worker_processes import WorkerProcesses
from tests.effort import ROUNDS


@pytest.fixture(scope="session")
def rounds() -> int:
    """How many days, besides the one that is always there, are thrown by dice and crashed."""
    return ROUNDS


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder, in memory where there is room: what a disk would do is simulated, or does not matter."""
    return tmp_path


@pytest.fixture(scope="session")
def auditor() -> Iterator[WorkerProcesses]:
    """A process that looks at database files with nothing but SQL."""
    with WorkerProcesses(1) as auditor:
        yield auditor
