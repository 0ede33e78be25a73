"""How long the crash suite runs, and where: `make crash` asks for many more rounds than `make test`."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.processes import Crew


@pytest.fixture(scope="session")
def rounds() -> int:
    """How many days, besides the one that is always there, are thrown by dice and crashed."""
    return int(os.environ.get("BACKSTAY_CRASH_ROUNDS", "3"))


@pytest.fixture
def desk() -> Iterator[Path]:
    """A folder in memory where the system has one: what the disk would do is simulated, or does not matter."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="backstay-", dir=memory if os.access(memory, os.W_OK) else None))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def auditor() -> Iterator[Crew]:
    """A process that looks at database files with nothing but SQL."""
    with Crew(1) as auditor:
        yield auditor
