"""How long the crash suite runs, and where: `make crash` asks for many more rounds than `make test`."""

from collections.abc import Iterator

import pytest

from tests.crash.worker_processes import WorkerProcesses
from tests.effort import ROUNDS


@pytest.fixture(scope="session")
def rounds() -> int:
    """The number of random workloads to crash, besides the fixed one."""
    return ROUNDS


@pytest.fixture(scope="session")
def auditor() -> Iterator[WorkerProcesses]:
    """A process that checks database files with SQL alone."""
    with WorkerProcesses(1) as auditor:
        yield auditor
