"""Fixtures of all tests of the server."""

from collections.abc import Iterator

import httpx2
import pytest

from tests.databases import Place
from tests.server.agents import AGENTS
from tests.server.running_server import RunningServer, run_server


@pytest.fixture
def path(place: Place) -> Place:
    """Where the store of this test lies, on every engine."""
    return place


@pytest.fixture(params=[True, False], ids=["notified", "polling"])
def notify(request: pytest.FixtureRequest) -> bool:
    """With and without the shortcut inside the process: it may only make things notify."""
    return bool(request.param)


@pytest.fixture
def server(path: Place) -> Iterator[RunningServer]:
    """A server with the agents of these tests."""
    with run_server(path, AGENTS) as server:
        yield server


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """The same, on a file, for all tests of a module: to start one takes longer than to ask it something."""
    with run_server(tmp_path_factory.mktemp("server") / "chat.db", AGENTS) as server:
        yield server


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx2.Client]:
    """An authenticated client."""
    with server.client() as client:
        yield client
