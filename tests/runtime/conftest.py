"""What every test of the runtime may ask for."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store of this test lies."""
    return tmp_path / "chat.db"


@pytest.fixture(params=[True, False], ids=["told", "polling"])
def prompt(request: pytest.FixtureRequest) -> bool:
    """With and without the shortcut inside the process: it may only make things prompt."""
    return bool(request.param)
