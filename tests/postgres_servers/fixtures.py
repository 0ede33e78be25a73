"""PostgreSQL for any test that asks: one server for the whole run, a fresh database for each test."""

from collections.abc import Iterator

import pytest

from tests.postgres_servers.postgres import Home, Postgres


@pytest.fixture(scope="session")
def postgres_home() -> Iterator[Home]:
    """Where this run's servers keep their files."""
    home = Home()
    yield home
    home.close()


@pytest.fixture(scope="session")
def postgres(postgres_home: Home) -> Iterator[Postgres]:
    """The server that tests share. A test that stops a server starts its own."""
    with Postgres(postgres_home) as server:
        yield server


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    """The URL of a fresh, empty database."""
    name = postgres.database()
    yield postgres.url(name)
    postgres.drop(name)
