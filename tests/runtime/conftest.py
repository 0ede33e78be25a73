"""Fixtures of all tests of the runtime."""

import pytest

from tests.databases import Place


@pytest.fixture
def path(place: Place) -> Place:
    """Where the store of this test lies, on each engine."""
    return place


@pytest.fixture(params=[True, False], ids=["notified", "polling"])
def notify(request: pytest.FixtureRequest) -> bool:
    """With and without the shortcut inside the process: it may only make things notify."""
    return bool(request.param)
