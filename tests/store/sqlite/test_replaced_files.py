"""The files of an open store are moved, deleted or replaced: no write is acknowledged there, and no data is harmed."""

import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from backstay import Address, Store
from backstay.errors import StoreReplaced
from backstay.model.ids import SessionId, TurnId
from backstay.testing import ManualClock
from tests.crash.sql_audit import audit
from tests.crash.worker_processes import PATIENCE, PROCESSES, WorkerProcesses, die, open_files
from tests.open_sqlite import open_sqlite
from tests.store.sqlite.test_sqlite_engine import GateClock
from tests.touching import touch

ME = "me"


def beside(path: Path, ending: str) -> Path:
    return Path(f"{path}{ending}")


def replace(file: Path) -> None:
    """Put a copy in the place of a file."""
    shutil.copy(file, f"{file}.copy")
    Path(f"{file}.copy").rename(file)


def delete_log_and_index(path: Path) -> None:
    beside(path, "-wal").unlink()
    beside(path, "-shm").unlink()


DELETIONS: dict[str, Callable[[Path], object]] = {
    "log": lambda path: beside(path, "-wal").unlink(),
    "index": lambda path: beside(path, "-shm").unlink(),
    "log and index": delete_log_and_index,
    "locks": lambda path: shutil.rmtree(beside(path, ".locks")),
}
REPLACEMENTS: dict[str, Callable[[Path], object]] = {
    **DELETIONS,
    "database": lambda path: path.unlink(),
    "database replaced": replace,
    "log replaced": lambda path: replace(beside(path, "-wal")),
    "write lock replaced": lambda path: replace(beside(path, ".locks") / "write"),
}


@pytest.mark.parametrize("what", REPLACEMENTS)
def test_a_write_is_refused_at_once_when_a_file_was_taken_away(path: Path, what: str) -> None:
    with open_sqlite(path) as store:
        session = store.create(owner=ME).id
        touch(store, session, owner=ME)

        REPLACEMENTS[what](path)

        for _ in range(2):
            with pytest.raises(StoreReplaced, match="moved, deleted or replaced"):
                touch(store, session, owner=ME)
            with pytest.raises(StoreReplaced):
                store.session(session, owner=ME)
            with pytest.raises(StoreReplaced):
                store.version()
    assert open_files(path) == []


@pytest.mark.parametrize("what", REPLACEMENTS)
def test_readers_notice_when_a_file_was_taken_away(path: Path, what: str) -> None:
    with open_sqlite(path) as store:
        session = store.create(owner=ME).id

        REPLACEMENTS[what](path)

        with pytest.raises(StoreReplaced):
            read_until_refused(store, session)


def read_until_refused(store: Store, session: SessionId) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        store.session(session, owner=ME)


@pytest.mark.parametrize("what", DELETIONS)
def test_acknowledged_writes_are_there_when_the_store_is_reopened(
    path: Path, other: WorkerProcesses, what: str
) -> None:
    with open_sqlite(path) as store:
        session = store.create(owner=ME).id
        for _ in range(10):
            touch(store, session, owner=ME)
        DELETIONS[what](path)
        with pytest.raises(StoreReplaced):
            touch(store, session, owner=ME)

    assert other.all(audit, path) == [[]]
    with open_sqlite(path) as store:
        assert touch(store, session, owner=ME).activity == 11


@pytest.mark.parametrize("what", DELETIONS)
def test_acknowledged_writes_survive_the_process_that_noticed_the_replacement(path: Path, what: str) -> None:
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=lose_files_and_die, args=(path, what, theirs))
    process.start()
    assert ours.poll(PATIENCE)
    session = ours.recv()
    process.join(PATIENCE)
    assert process.exitcode == -9

    with open_sqlite(path) as store:
        assert store.session(session, owner=ME).activity == 10


def lose_files_and_die(path: Path, what: str, pipe: "Connection[Any, Any]") -> None:
    store = open_sqlite(path)
    session = store.create(owner=ME).id
    for _ in range(10):
        touch(store, session, owner=ME)
    DELETIONS[what](path)
    with pytest.raises(StoreReplaced):
        touch(store, session, owner=ME)
    pipe.send(session)
    die()


LOSSES: dict[str, Callable[[Path], object]] = {
    **{what: taken for what, taken in REPLACEMENTS.items() if what.startswith(("log", "index"))},
    "log renamed": lambda path: beside(path, "-wal").rename(f"{path}.old-wal"),
    "index renamed": lambda path: beside(path, "-shm").rename(f"{path}.old-shm"),
}


@pytest.mark.parametrize("what", LOSSES)
def test_a_store_whose_log_was_lost_is_not_opened_until_its_writes_are_saved(
    path: Path, other: WorkerProcesses, what: str
) -> None:
    with open_sqlite(path) as store:
        session = store.create(owner=ME).id
        for _ in range(10):
            touch(store, session, owner=ME)
        LOSSES[what](path)
        (refusal,) = other.all(refusal_of, path)
        assert refusal.startswith(f"the log or index of {path} was moved, deleted or replaced")

    assert other.all(audit, path) == [[]]
    assert other.all(touch_often, path, session, 1) == [11]


def refusal_of(_: int, path: Path) -> str:
    """The error of an attempt to open the store."""
    with pytest.raises(StoreReplaced) as refused:
        open_sqlite(path)
    return str(refused.value)


def test_a_store_that_lost_all_but_its_database_does_not_harm_one_that_was_opened_since(
    path: Path, other: WorkerProcesses
) -> None:
    with open_sqlite(path) as store:
        session = store.create(owner=ME).id
    with open_sqlite(path) as store:
        touch(store, session, owner=ME)
        delete_log_and_index(path)
        shutil.rmtree(beside(path, ".locks"))
        (seen,) = other.all(touch_often, path, session, 20)
        with pytest.raises(StoreReplaced):
            touch(store, session, owner=ME)

    assert other.all(audit, path) == [[]]
    with open_sqlite(path) as store:
        assert store.session(session, owner=ME).activity == seen


def test_acknowledged_writes_are_kept_when_a_link_takes_the_place_of_the_database(path: Path) -> None:
    with open_sqlite(path) as store:
        session = store.create(owner=ME).id
        touch(store, session, owner=ME)
        path.rename(path.with_name("real.db"))
        path.symlink_to(path.with_name("real.db"))
        with pytest.raises(StoreReplaced):
            touch(store, session, owner=ME)

    assert activity_of(path) == [1]


def test_a_store_whose_database_became_a_link_is_written_by_one_process(path: Path, other: WorkerProcesses) -> None:
    with open_sqlite(path) as store:
        session = store.create(owner=ME).id
    real = path.with_name("real.db")
    with open_sqlite(path) as store:
        touch(store, session, owner=ME)
        path.rename(real)
        path.symlink_to(real)
        (seen,) = other.all(touch_often, path, session, 20)
        with pytest.raises(StoreReplaced):
            touch(store, session, owner=ME)

    assert other.all(audit, real) == [[]]
    with open_sqlite(path) as store:
        assert store.session(session, owner=ME).activity == seen


def touch_often(_: int, path: Path, session: SessionId, times: int) -> int:
    """The result of the last of this number of writes."""
    with open_sqlite(path) as store:
        return [touch(store, session, owner=ME).activity for _ in range(times)][-1]


@pytest.mark.parametrize("what", ["database", "database replaced", "log", "log and index", "log replaced"])
def test_a_write_is_not_acknowledged_when_its_file_is_deleted_before_it_commits(path: Path, what: str) -> None:
    clock = GateClock()
    with open_sqlite(path, clock=clock) as store, ThreadPoolExecutor(1) as thread:
        session = store.create(owner=ME).id
        with clock.shut():
            gated = thread.submit(touch, store, session, owner=ME)
            assert clock.entered.wait(PATIENCE)
            REPLACEMENTS[what](path)

        assert isinstance(gated.exception(PATIENCE), StoreReplaced)


@pytest.mark.parametrize("moved", ["file", "folder"])
def test_a_write_that_commits_while_its_file_is_moved_is_in_the_moved_file(
    path: Path, tmp_path: Path, moved: str
) -> None:
    clock = GateClock()
    elsewhere = tmp_path / "elsewhere"
    with open_sqlite(path, clock=clock) as store, ThreadPoolExecutor(1) as thread:
        session = store.create(owner=ME).id
        with clock.shut():
            gated = thread.submit(touch, store, session, owner=ME)
            assert clock.entered.wait(PATIENCE)
            if moved == "folder":
                path.parent.rename(elsewhere)
            else:
                elsewhere.mkdir()
                for file in (path, beside(path, "-wal"), beside(path, "-shm")):
                    file.rename(elsewhere / file.name)
        assert gated.result(PATIENCE).activity == 1
        with pytest.raises(StoreReplaced):
            touch(store, session, owner=ME)

    with open_sqlite(elsewhere / "store.db") as store:
        assert store.session(session, owner=ME).activity == 1


def test_a_backup_put_in_the_place_of_an_open_store_is_opened_as_it_is(path: Path, tmp_path: Path) -> None:
    with open_sqlite(path) as store:
        session = store.create(owner=ME).id
    shutil.copy(path, tmp_path / "backup.db")
    with open_sqlite(path) as store:
        touch(store, session, owner=ME)
        path.rename(tmp_path / "old.db")
        beside(path, "-wal").rename(tmp_path / "old.db-wal")
        shutil.copy(tmp_path / "backup.db", path)
        with pytest.raises(StoreReplaced):
            touch(store, session, owner=ME)

        with open_sqlite(path) as restored:
            assert touch(restored, session, owner=ME).activity == 1
        with pytest.raises(StoreReplaced):
            touch(store, session, owner=ME)

    assert activity_of(path) == [1]
    assert activity_of(tmp_path / "old.db") == [1]


def activity_of(path: Path) -> list[int]:
    with open_sqlite(path) as store:
        return [session.activity for session in store.list(owner=ME).sessions]


def test_a_holder_whose_lock_folder_was_deleted_is_not_taken_for_dead(path: Path, other: WorkerProcesses) -> None:
    with open_sqlite(path) as store:
        turn = store.submit(Address.chat("matrix", "group", chat="one"), "hi", owner=ME, start=True).turn

        shutil.rmtree(beside(path, ".locks"))

        assert other.all(look_at, path, turn.id, 0.0) == ["running"]
        assert other.all(look_at, path, turn.id, 29.0) == ["running"]
        assert other.all(look_at, path, turn.id, 31.0) == ["Interrupted"]


def look_at(_: int, path: Path, turn: TurnId, later: float) -> str:
    """The state of a turn for a process that starts this many seconds later, after all upkeep."""
    clock = ManualClock()
    clock.advance(later)
    with open_sqlite(path, clock=clock) as store:
        store.collect()
        store.reap()
        found = store.turn(turn, owner=ME)
        return type(found.outcome).__name__ if found.state == "ended" else found.state


def test_opening_a_store_whose_files_were_taken_away_names_them(path: Path) -> None:
    with open_sqlite(path):
        beside(path, "-wal").unlink()

        with pytest.raises(StoreReplaced, match=r"store\.db-wal"):
            open_sqlite(path)

    with open_sqlite(path) as store:
        store.create(owner=ME)
