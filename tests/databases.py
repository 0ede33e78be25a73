"""The store of a test: a file of its own, or a PostgreSQL database that was emptied for it.

A test that asks for `place` runs on every engine and names none, unless the engine cannot matter to it. Making a
database takes as long as a whole test; copying an empty file, or emptying a database, takes a tenth of that.
"""

import itertools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from backstay.store import open_store
from tests.effort import THOROUGH
from tests.memory_folder import memory_folder
from tests.postgres_servers.postgres import Postgres

Place = Path | str
ENGINES = ("sqlite", "postgres")

_EMPTY = """
SET lock_timeout = '60s';
DELETE FROM buttons; DELETE FROM notices; DELETE FROM chats;
DELETE FROM receipts; DELETE FROM deliveries; DELETE FROM arrivals;
DELETE FROM gateway_people; DELETE FROM gateways;
DELETE FROM imports; DELETE FROM search; DELETE FROM blob_uses; DELETE FROM blobs; DELETE FROM calls; DELETE FROM turns;
DELETE FROM marks;
DELETE FROM events; DELETE FROM messages; DELETE FROM segments; DELETE FROM windows; DELETE FROM addresses;
DELETE FROM sessions; DELETE FROM workers; DELETE FROM sightings; DELETE FROM commits; DELETE FROM tokens;
DELETE FROM owner_totals; DELETE FROM served_agents; DELETE FROM schedules; DELETE FROM schedule_log;
UPDATE indexed SET languages = '{}', unstemmed = 0
"""


@cache
def _empty_store() -> bytes:
    """A file in which a store was made and nothing was written."""
    with tempfile.TemporaryDirectory(prefix="backstay-empty-", dir=memory_folder()) as folder:
        path = Path(folder, "store.db")
        open_store(path).close()
        return path.read_bytes()


def with_empty_store(path: Path) -> Path:
    """The path, with a file in which a store was made and nothing was written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(_empty_store())
    return path


def everything_in(place: Place) -> bytes:
    """All data of a closed store, on any engine."""
    if isinstance(place, Path):
        return b"".join(file.read_bytes() for file in place.parent.iterdir() if file.is_file())
    with psycopg.connect(place) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
        rows = [
            row
            for (table,) in tables
            for row in connection.execute(SQL("SELECT * FROM {}").format(Identifier(table))).fetchall()
        ]
    return repr(rows).encode()


@contextmanager
def locked(url: str) -> Iterator[None]:
    """Inside the block every write to the database waits, and reads continue."""
    with psycopg.connect(url) as connection:
        connection.execute("LOCK TABLE commits IN EXCLUSIVE MODE")
        yield


def let_leases_lapse(place: Place, pid: int) -> None:
    """Advance the time until a dead process counts as dead; on its own machine a file lock shows it at once."""
    if isinstance(place, Path):
        return
    with psycopg.connect(place) as connection:
        # The server has finished its work for the dead process when this lock is granted.
        connection.execute("LOCK TABLE commits IN EXCLUSIVE MODE")
        connection.execute(
            "UPDATE sessions SET lease_until = 0 WHERE holder IN (SELECT id FROM workers WHERE pid = %s)", (pid,)
        )


class UsedDatabase:
    """A database that many tests use, one after the other. The connection that empties it stays open to save time."""

    def __init__(self, url: str) -> None:
        open_store(url).close()
        self._url = url
        self._broom = psycopg.connect(url, autocommit=True)

    def emptied(self) -> str:
        """Its URL, once only its empty tables are left."""
        self._broom.execute(_EMPTY)
        return self._url

    def close(self) -> None:
        """Close the connection."""
        self._broom.close()


@pytest.fixture(scope="session")
def used_database(postgres: Postgres) -> Iterator[UsedDatabase]:
    """One for all tests of this process."""
    name = postgres.database()
    database = UsedDatabase(postgres.url(name))
    yield database
    database.close()
    postgres.drop(name)


@pytest.fixture
def empty_database(used_database: UsedDatabase) -> str:
    """The URL of a database in which a store was made and nothing was written."""
    return used_database.emptied()


class Places(NamedTuple):
    """Gives one place after the other with an empty store in it; only the last one may still be used.

    A remote store answers slowly: a test with many queries may send fewer there.
    """

    fresh: Callable[[], Place]
    far: bool


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for a place on every engine.

    If its mark `engines` names some, only these are used: the contract covers the others.
    A thorough run uses every engine all the same.
    """
    if "places" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("engines")
        metafunc.parametrize("places", mark.args if mark and not THOROUGH else ENGINES, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On PostgreSQL, run a test either with or without the shortcut inside the process: the two are independent.

    SQLite runs both. A thorough run has all four.
    """
    left_out = [] if THOROUGH else [item for item in items if isinstance(item, pytest.Function) and _has_other(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = frozenset(left_out)
        items[:] = [item for item in items if item not in gone]


def _has_other(item: pytest.Function) -> bool:
    """Whether a test on PostgreSQL has the other one of the two ways than its name chooses."""
    chosen = item.callspec.params if hasattr(item, "callspec") else {}
    if chosen.get("places") != "postgres" or "notify" not in chosen:
        return False
    return bool(chosen["notify"]) != bool(crc32(item.originalname.encode()) & 1)


@pytest.fixture
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    """Places on each engine."""
    if request.param == "sqlite":
        numbers = itertools.count(1)
        return Places(lambda: with_empty_store(tmp_path / f"{next(numbers)}" / "store.db"), far=False)
    database: UsedDatabase = request.getfixturevalue("used_database")
    return Places(database.emptied, far=True)


@pytest.fixture
def place(places: Places) -> Place:
    """Where the store of this test lies: it was made, and nothing was written."""
    return places.fresh()


@pytest.fixture(params=["sqlite", "postgres"])
def bare_places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Place]]:
    """Gives one place after the other, each without a store."""
    numbers = itertools.count(1)
    if request.param == "sqlite":
        yield lambda: tmp_path / f"{next(numbers)}" / "store.db"
        return
    server: Postgres = request.getfixturevalue("postgres")
    made: list[str] = []

    def database() -> Place:
        made.append(server.database())
        return server.url(made[-1])

    yield database
    for name in made:
        server.drop(name)


@pytest.fixture
def new_database(postgres: Postgres) -> Iterator[Callable[[], str]]:
    """Creates empty databases, which are dropped afterwards."""
    made: list[str] = []

    def database() -> str:
        made.append(postgres.database())
        return postgres.url(made[-1])

    yield database
    for name in made:
        postgres.drop(name)
