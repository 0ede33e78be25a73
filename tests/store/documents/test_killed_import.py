"""A process is killed at any step of an import: the import stays invisible, and its rows are deleted later."""

import time
from pathlib import Path

import pytest

from backstay import open_store
from backstay.errors import NotFound
from backstay.model.documents.records import header_in
from backstay.store.database_upkeep import checkup, repair
from backstay.testing import ManualClock
from tests.contract.builders import ME
from tests.databases import Place
from tests.effort import sample
from tests.store.documents.killed_import import STEPS, a_document, killed


@pytest.fixture
def document(tmp_path: Path) -> Path:
    return a_document(tmp_path)


def much_later() -> ManualClock:
    return ManualClock(now=time.time_ns() // 1_000_000 + 3_600_000)


@pytest.mark.parametrize("step", sample(range(1, STEPS + 1), 3))
def test_a_killed_import_is_invisible_and_its_rows_are_removed(place: Place, document: Path, step: int) -> None:
    with document.open("rb") as file:
        session = header_in(file, 1 << 20).session.id
    assert killed(place, document, step)

    with open_store(place) as store:
        assert store.list(owner=ME).sessions == ()
        assert (store.search("question", owner=ME).hits, store.feed(0, owner=ME).events) == ((), ())
        with pytest.raises(NotFound):
            store.session(session, owner=ME)
    with open_store(place, clock=much_later()) as store, document.open("rb") as file:
        store.collect()
        assert [one for one in checkup(place, quick=True, progress=lambda *_: None) if one.about == "imports"] == []
        # Its ids are free, so nothing has them; and what is imported now is whole.
        assert not store.import_session(file, owner=ME).copied
        assert store.session(session, owner=ME).length > 1_000
    assert [one for one in checkup(place, quick=False, progress=lambda *_: None) if one.level == "wrong"] == []


def test_the_doctor_reports_a_killed_import(place: Place, document: Path) -> None:
    assert killed(place, document, STEPS)

    found = [one for one in checkup(place, quick=False, progress=lambda *_: None) if one.about == "imports"]
    assert [(one.level, one.detail) for one in found] == [("fine", "1 running")]
    assert [one for one in checkup(place, quick=False, progress=lambda *_: None) if one.level == "wrong"] == []
    repair(place, ["imports"])
