"""Fixtures of the tests on PostgreSQL: connections to the server, a faulty network, and the number of examples."""

from collections.abc import Iterator

import pytest

from tests.crash.conftest import rounds
from tests.postgres_servers.faulty_proxy import Proxy
from tests.postgres_servers.pgbouncer import Pgbouncer
from tests.postgres_servers.postgres import Home, Postgres

__all__ = ["rounds"]


@pytest.fixture(scope="session")
def pool(postgres_home: Home, postgres: Postgres) -> Iterator[Pgbouncer]:
    """A transaction pool in front of the shared server."""
    with Pgbouncer(postgres_home, postgres.port) as pool:
        yield pool


@pytest.fixture
def name(postgres: Postgres) -> Iterator[str]:
    """The name of a fresh, empty database on the shared server."""
    name = postgres.database()
    yield name
    postgres.drop(name)


@pytest.fixture(params=["straight", "pooled"])
def server_port(request: pytest.FixtureRequest, postgres: Postgres) -> int:
    """The port of the shared server, and then of the pool in front of it."""
    if request.param == "straight":
        return postgres.port
    pool: Pgbouncer = request.getfixturevalue("pool")
    return pool.port


@pytest.fixture
def network(postgres: Postgres) -> Iterator[Proxy]:
    """A proxy to the shared server, which works until a test breaks it."""
    with Proxy(postgres.port) as network:
        yield network


@pytest.fixture
def any_network(server_port: int) -> Iterator[Proxy]:
    """The same, to the server and then to the pool."""
    with Proxy(server_port) as network:
        yield network
