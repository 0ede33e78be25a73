"""One owner's app and the client of a server with the same agents: the same facts hold for both."""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager

import pytest

import backstay
from backstay import App, Client
from tests.databases import Place
from tests.server.agents import AGENTS
from tests.server.running_server import RunningServer, run_server

Opened = AbstractAsyncContextManager[App | Client]


@pytest.fixture(params=["local", "remote"])
def opened(request: pytest.FixtureRequest, place: Place) -> Iterator[Opened]:
    """An app to be opened, or a client of a server on the same kind of store."""
    if request.param == "local":
        yield backstay.open(place, agents=AGENTS)
        return
    with run_server(place, AGENTS) as server:
        yield client_of(server)


def client_of(server: RunningServer, **more: float) -> AbstractAsyncContextManager[Client]:
    """A client of the owner of this server."""
    return backstay.connect(server.url, token=server.token(), **more)
