"""Fixtures of all tests of the command line."""

from functools import partial
from pathlib import Path

import pytest

from tests.cli.installed_command import RunCli, run_cli_in
from tests.databases import Place


@pytest.fixture
def run_cli(tmp_path: Path, place: Place) -> RunCli:
    """Runs a command on the store of this test, on each engine."""
    return partial(run_cli_in, tmp_path, place)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The path of the store of this test, for tests of files."""
    return tmp_path / "home" / "chat.db"


@pytest.fixture
def run_cli_file(tmp_path: Path, file: Path) -> RunCli:
    """Runs a command on a file."""
    return partial(run_cli_in, tmp_path, file)
