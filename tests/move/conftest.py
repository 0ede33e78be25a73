"""Two places that a store may move between: on every pair of engines, with nothing in either."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.databases import Place


class Road(NamedTuple):
    """From where to where. `fresh` makes another place like the target."""

    source: Place
    target: Place
    fresh: Callable[[], Place]


BETWEEN_ENGINES = ["sqlite-postgres", "postgres-sqlite"]
EVERY_ROAD = [*BETWEEN_ENGINES, "sqlite-sqlite", "postgres-postgres"]


@pytest.fixture(params=BETWEEN_ENGINES)
def road(request: pytest.FixtureRequest, tmp_path: Path, new_database: Callable[[], str]) -> Road:
    """The ways a store can go, from one engine to the other unless a test says which."""
    one, other = request.param.split("-")
    numbers = iter(range(1, 100))

    def fresh(engine: str) -> Place:
        return tmp_path / str(next(numbers)) / "store.db" if engine == "sqlite" else new_database()

    return Road(fresh(one), fresh(other), lambda: fresh(other))
