"""What every test of the command line may ask for."""

from functools import partial
from pathlib import Path

import pytest

from tests.cli.installed_command import Tell, tell
from tests.databases import Place


@pytest.fixture
def told(tmp_path: Path, place: Place) -> Tell:
    """Runs a command on the store of this test, on each engine."""
    return partial(tell, tmp_path, place)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the store of this test lies, for what concerns files."""
    return tmp_path / "home" / "chat.db"


@pytest.fixture
def told_file(tmp_path: Path, file: Path) -> Tell:
    """Runs a command on a file."""
    return partial(tell, tmp_path, file)
