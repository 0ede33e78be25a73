"""What every test of the server may ask for."""

from collections.abc import Iterator

import httpx2
import pytest

from tests.databases import Place
from tests.server.agents import AGENTS
from tests.server.house import House, a_house


@pytest.fixture
def path(place: Place) -> Place:
    """Where the store of this test lies, on every engine."""
    return place


@pytest.fixture(params=[True, False], ids=["told", "polling"])
def prompt(request: pytest.FixtureRequest) -> bool:
    """With and without the shortcut inside the process: it may only make things prompt."""
    return bool(request.param)


@pytest.fixture
def house(path: Place) -> Iterator[House]:
    """A server with the agents of these tests."""
    with a_house(path, AGENTS) as house:
        yield house


@pytest.fixture
def client(house: House) -> Iterator[httpx2.Client]:
    """Somebody who may ask it."""
    with house.client() as client:
        yield client
