"""The source and the target of a move: every pair of engines, both empty."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.databases import Place


class MoveEnds(NamedTuple):
    """The source and the target. `fresh` creates another target."""

    source: Place
    target: Place
    fresh: Callable[[], Place]


BETWEEN_ENGINES = ["sqlite-postgres", "postgres-sqlite"]
EVERY_ROAD = [*BETWEEN_ENGINES, "sqlite-sqlite", "postgres-postgres"]


@pytest.fixture(params=BETWEEN_ENGINES)
def ends(request: pytest.FixtureRequest, tmp_path: Path, new_database: Callable[[], str]) -> MoveEnds:
    """The pairs of engines; by default each move goes to the other engine."""
    one, other = request.param.split("-")
    numbers = iter(range(1, 100))

    def fresh(engine: str) -> Place:
        return tmp_path / str(next(numbers)) / "store.db" if engine == "sqlite" else new_database()

    return MoveEnds(fresh(one), fresh(other), lambda: fresh(other))
