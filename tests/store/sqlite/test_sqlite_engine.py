"""The SQLite engine: shared state, rejected files, and forks, locks and disks."""

import gc
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import apsw
import pytest

from backstay import Address, Store, Text, ToolCall, ToolResult, Ttl, open_store
from backstay.errors import (
    BackstayError,
    ConfigError,
    NotFound,
    SchemaMismatch,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TooLarge,
)
from backstay.model import message as m
from backstay.model.ids import SessionId, TurnId
from backstay.model.turn import Completed, Interrupted
from backstay.store.sqlite.connection import APPLICATION_ID
from backstay.store.sqlite.migrations import SqliteMigration, refuse_foreign_file, shipped
from backstay.testing import ManualClock
from tests.crash.sql_audit import audit
from tests.crash.worker_processes import PATIENCE, PROCESSES, WorkerProcesses, die, open_files
from tests.open_sqlite import open_sqlite
from tests.postgres_servers.unprivileged_account import account
from tests.simulated_disk import Counts, Disk, Fault, Quota, Read, Sync
from tests.touching import touch

ME = "me"


class GateClock(ManualClock):
    """Once shut, holds a verb in the middle of its transaction, when it reads the time."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self._open = threading.Event(), threading.Event()
        self._open.set()

    def now(self) -> int:
        if not self._open.is_set():
            self.entered.set()
            assert self._open.wait(PATIENCE)
        return super().now()

    @contextmanager
    def shut(self) -> Iterator[None]:
        self.entered.clear()
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()


# --- sharing --------------------------------------------------------------------------------------------------------


def test_verbs_of_two_handles_that_arrive_during_a_commit_share_the_next_one(path: Path) -> None:
    counts, clock = Counts(), GateClock()
    with Disk(counts) as disk, open_sqlite(path, disk=disk, clock=clock) as first, ThreadPoolExecutor(21) as threads:
        sessions = [first.create(owner=ME).id for _ in range(21)]
        with open_sqlite(path, disk=disk) as second:
            counts.forget()
            with clock.shut():
                gated = threads.submit(touch, first, sessions[0], owner=ME)
                assert clock.entered.wait(PATIENCE)
                waiting = [threads.submit(touch, second, session, owner=ME) for session in sessions[1:]]
                until_all_wait_in_line(second, sessions[0])
            activity = [answer.result(PATIENCE).activity for answer in [gated, *waiting]]

    assert activity == [1] * 21
    assert counts.syncs <= 5, "twenty durable verbs waited for the one under way and should share a commit or two"


def until_all_wait_in_line(store: Store, session: SessionId) -> None:
    """Wait until the verbs are queued: this number of concurrent reads takes longer than that."""
    for _ in range(300):
        store.session(session, owner=ME)


def test_a_verb_that_fails_does_not_disturb_the_others_of_its_commit(path: Path) -> None:
    clock = GateClock()
    with (
        open_sqlite(path, clock=clock) as store,
        open_sqlite(path) as reader,
        ThreadPoolExecutor(9) as threads,
    ):
        sessions = [store.create(owner=ME).id for _ in range(4)]
        with clock.shut():
            gated = threads.submit(touch, store, sessions[0], owner=ME)
            assert clock.entered.wait(PATIENCE)
            good = [threads.submit(store.record, session, [m.user("hello")], owner=ME) for session in sessions]
            foreign = threads.submit(touch, store, sessions[0], owner="a stranger")
            large = threads.submit(store.submit, sessions[1], "x" * 2_000_000, owner=ME)
            until_all_wait_in_line(reader, sessions[0])
        gated.result(PATIENCE)

        assert [len(answer.result(PATIENCE).messages) for answer in good] == [1] * 4
        assert isinstance(foreign.exception(PATIENCE), NotFound)
        assert isinstance(large.exception(PATIENCE), TooLarge)
        assert [store.session(session, owner=ME).length for session in sessions] == [1] * 4


def test_opening_and_closing_a_second_handle_drops_no_lock_of_the_first(path: Path, other: WorkerProcesses) -> None:
    clock = GateClock()
    with open_sqlite(path, clock=clock) as store, ThreadPoolExecutor(1) as thread:
        session = store.create(owner=ME).id
        path.with_name("link.db").symlink_to(path)
        with clock.shut():
            gated = thread.submit(touch, store, session, owner=ME)
            assert clock.entered.wait(PATIENCE)

            for name in (path, path.with_name("link.db")):
                with open_sqlite(name) as second:
                    assert second.session(session, owner=ME).activity == 0

            assert other.all(try_to_lock, path) == ["busy"]
        gated.result(PATIENCE)
    assert other.all(try_to_lock, path) == ["free"]


def try_to_lock(_: int, path: Path) -> str:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.execute("BEGIN IMMEDIATE")
        return "free"
    except apsw.BusyError:
        return "busy"
    finally:
        connection.close()


def test_many_threads_of_a_new_handle_may_start_their_first_turns_at_once(path: Path) -> None:
    for number in range(10):
        with open_sqlite(path.with_name(f"{number}.db")) as store, ThreadPoolExecutor(8) as threads:
            together = threading.Barrier(8)
            opened = [threads.submit(start_together, store, together, f"{n}") for n in range(8)]
            assert all(answer.result(PATIENCE) for answer in opened)


def start_together(store: Store, together: threading.Barrier, chat: str) -> bool:
    together.wait(PATIENCE)
    return store.submit(Address.chat("matrix", "group", chat=chat), "hi", owner=ME, start=True).opened is not None


def test_many_threads_may_read_while_others_write(path: Path) -> None:
    with open_sqlite(path) as store, ThreadPoolExecutor(8) as threads:
        session = store.create(owner=ME).id
        readers = [threads.submit(read_often, store, session) for _ in range(6)]
        for _ in range(100):
            touch(store, session, owner=ME)
        for reader in readers:
            seen = reader.result(PATIENCE)
            assert seen == sorted(seen)


def read_often(store: Store, session: SessionId) -> list[int]:
    return [store.session(session, owner=ME).activity for _ in range(300)]


def test_closing_finishes_the_verb_that_is_under_way(path: Path) -> None:
    clock = GateClock()
    store = open_sqlite(path, clock=clock)
    session = store.create(owner=ME).id
    with ThreadPoolExecutor(2) as threads:
        with clock.shut():
            gated = threads.submit(touch, store, session, owner=ME)
            assert clock.entered.wait(PATIENCE)
            closing = threads.submit(store.close)
        assert gated.result(PATIENCE).activity == 1
        closing.result(PATIENCE)

    with pytest.raises(StoreUnavailable, match="closed"):
        touch(store, session, owner=ME)
    with open_sqlite(path) as store:
        assert store.session(session, owner=ME).activity == 1


# --- forks ----------------------------------------------------------------------------------------------------------


def test_a_forked_child_can_neither_use_nor_reopen_the_store_of_its_parent(path: Path, other: WorkerProcesses) -> None:
    in_child, in_parent = other.all(use_in_a_fork, path)[0]

    assert in_child == ["UsedAfterFork"] * 3
    assert in_parent == 3


def use_in_a_fork(_: int, path: Path) -> tuple[list[str], int]:
    with open_store(path) as store:
        session = store.create(owner=ME).id
        touch(store, session, owner=ME)
        attempts: list[Callable[[], object]] = [
            lambda: touch(store, session, owner=ME),
            lambda: store.session(session, owner=ME),
            lambda: open_store(path),
        ]
        in_child = in_a_fork(lambda: [name_of_error(attempt) for attempt in attempts])
        touch(store, session, owner=ME)
        touch(store, session, owner=ME)
        return in_child, store.session(session, owner=ME).activity


def name_of_error(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except BackstayError as error:
        return type(error).__name__
    return "nothing"


def in_a_fork(work: Callable[[], list[str]]) -> list[str]:
    """The answer of a forked child, which ends without the cleanup of the interpreter."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, ",".join(work()).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading) as answer:
        return answer.read().split(",")


def test_a_forked_child_that_closes_and_ends_does_no_harm_to_its_parent(path: Path, other: WorkerProcesses) -> None:
    before, after, beside = other.all(close_in_a_fork, path)[0]

    assert beside["store.db-wal"]
    assert (before, after) == (1, 51)
    assert other.all(audit, path) == [[]]
    with open_store(path) as store:
        assert store.list(owner=ME).sessions[0].activity == 51


def close_in_a_fork(_: int, path: Path) -> tuple[int, int, dict[str, bool]]:
    with open_store(path) as store:
        session = store.create(owner=ME).id
        before = touch(store, session, owner=ME).activity

        def close() -> list[str]:
            store.close()
            return [str(gc.collect())]

        in_a_fork(close)
        beside = {file.name: file.exists() for file in path.parent.iterdir()}
        for _ in range(50):
            touch(store, session, owner=ME)
        return before, store.session(session, owner=ME).activity, beside


def test_a_forked_child_does_not_keep_its_dead_parent_looking_alive(path: Path) -> None:
    ours, theirs = PROCESSES.Pipe()
    parent = PROCESSES.Process(target=start_fork_and_wait, args=(path, theirs))
    parent.start()
    theirs.close()
    assert ours.poll(PATIENCE)
    turn, child = ours.recv()
    try:
        with open_store(path) as store:
            assert store.turn(turn, owner=ME).state == "running"

            parent.kill()
            parent.join(PATIENCE)

            assert isinstance(store.turn(turn, owner=ME).outcome, Interrupted)
            store.create(owner=ME)
    finally:
        os.kill(child, signal.SIGKILL)


def start_fork_and_wait(path: Path, pipe: "Connection[Any, Any]") -> None:
    store = open_store(path)
    turn = store.submit(Address.chat("matrix", "group", chat="one"), "hi", owner=ME, start=True).turn
    child = os.fork()
    if child:
        pipe.send((turn.id, child))
    pipe.recv()


# --- foreign files --------------------------------------------------------------------------------------------------

FOREIGN = {
    "in rollback mode": "CREATE TABLE notes (text); INSERT INTO notes VALUES ('mine')",
    "in WAL mode": "PRAGMA journal_mode = WAL; CREATE TABLE notes (text); INSERT INTO notes VALUES ('mine')",
    "of another application": "PRAGMA application_id = 77",
    "with a version of its own": "PRAGMA user_version = 3",
}
NEWER = f"PRAGMA journal_mode = WAL; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 999"


@pytest.mark.parametrize("text", ["", "# notes\n" * 1000, "hi"])
def test_a_file_that_is_not_a_database_is_rejected_untouched_unless_empty(tmp_path: Path, text: str) -> None:
    file = tmp_path / "notes.md"
    file.write_text(text)

    if text:
        refused_untouched(file, "Choose another path")
    else:
        open_store(file).close()


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_database_of_another_program_is_refused_untouched(tmp_path: Path, other: WorkerProcesses, kind: str) -> None:
    other.all(run_sql, tmp_path / "theirs.db", FOREIGN[kind])

    refused_untouched(tmp_path / "theirs.db", "Choose another path")


@pytest.mark.parametrize("mode", ["DELETE", "WAL", "WAL only"])
def test_a_database_that_another_program_died_over_is_refused_untouched(
    tmp_path: Path, other: WorkerProcesses, mode: str
) -> None:
    if mode != "WAL only":
        other.all(run_sql, tmp_path / "theirs.db", FOREIGN["in rollback mode"])
    process = PROCESSES.Process(target=die_over, args=(tmp_path / "theirs.db", mode.removesuffix(" only")))
    process.start()
    process.join(PATIENCE)

    refused_untouched(tmp_path / "theirs.db", "Choose another path")


def test_a_database_of_a_newer_version_is_refused_untouched_and_a_command_suggested(
    tmp_path: Path, other: WorkerProcesses
) -> None:
    other.all(run_sql, tmp_path / "newer.db", NEWER)

    refused_untouched(tmp_path / "newer.db", "pip install --upgrade backstay")


def test_a_directory_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()

    refused_untouched(tmp_path / "folder", "Choose another path")


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")

    with pytest.raises(ConfigError, match="cannot be"):
        open_store(tmp_path / "file" / "store.db")


def test_a_file_where_the_locks_belong_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "store.db.locks").write_text("not a folder")

    with pytest.raises(StoreUnavailable, match=r"store\.db\.locks cannot be used"):
        open_store(tmp_path / "store.db")


def refused_untouched(path: Path, hint: str) -> None:
    before = everything_in(path.parent)

    with pytest.raises(SchemaMismatch) as refusal:
        open_store(path)

    assert hint in str(refusal.value)
    assert everything_in(path.parent) == before


def everything_in(folder: Path) -> dict[str, bytes | None]:
    """Names and bytes; of shared memory only the name, because the next reader creates that of a dead program again."""
    files = list(folder.rglob("*"))
    return {file.name: None if file.is_dir() or "-shm" in file.name else file.read_bytes() for file in files}


def run_sql(_: int, path: Path, sql: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(sql).fetchall()
    connection.close()


def die_over(path: Path, mode: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA journal_mode = {mode}").fetchall()
    connection.execute("CREATE TABLE more_notes (text)")
    connection.execute("PRAGMA cache_size = 1; BEGIN; INSERT INTO more_notes VALUES (zeroblob(100000))").fetchall()
    connection.cache_flush()
    die()


# --- file systems ---------------------------------------------------------------------------------------------------

LOCAL = "21 1 8:1 / / rw,relatime - ext4 /dev/sda rw"


@pytest.mark.parametrize("name", ["nas", "my nas", "Größe", "linked"])
@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_a_network_file_system_is_refused_and_nothing_is_made_there(tmp_path: Path, name: str, kind: str) -> None:
    folder = tmp_path / ("nas" if name == "linked" else name)
    folder.mkdir()
    if name == "linked":
        (tmp_path / "linked").symlink_to(folder)
    mounts = tmp_path / "mountinfo"
    point = str(folder).replace(" ", "\\040")
    mounts.write_text(f"{LOCAL}\n33 21 0:44 / {point} rw shared:1 - {kind} server:/share rw\n")

    with pytest.raises(StoreUnavailable, match=kind):
        open_sqlite(tmp_path / name / "store.db", mounts=mounts)

    assert list(folder.iterdir()) == []


def test_a_local_file_system_below_a_network_one_is_accepted(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    local = f"34 33 8:2 / {tmp_path / 'local'} rw - xfs /dev/sdb rw"
    mounts.write_text(f"{LOCAL}\n33 21 0:44 / {tmp_path} rw - nfs4 server:/share rw\n{local}\n")

    with open_sqlite(tmp_path / "local" / "store.db", mounts=mounts) as store:
        store.create(owner=ME)


def test_files_of_the_store_are_readable_only_by_the_user(path: Path, other: WorkerProcesses) -> None:
    (modes,) = other.all(modes_without_umask, path)

    assert {name: mode for name, mode in modes.items() if mode not in ("0o600", "0o700")} == {}
    assert modes["home"] == "0o700"
    assert {"store.db", "store.db-wal", "store.db-shm"} <= modes.keys()


def modes_without_umask(_: int, path: Path) -> dict[str, str]:
    before = os.umask(0)
    try:
        with open_store(path) as store:
            store.submit(Address.chat("matrix", "group", chat="one"), "hi", owner=ME, start=True)
            made = [path.parent, *path.parent.rglob("*")]
            return {file.name: oct(stat.S_IMODE(file.stat().st_mode)) for file in made}
    finally:
        os.umask(before)


@pytest.mark.parametrize("how", ["unlinked", "replaced", "folder moved", "folder is a file"])
def test_a_file_removed_under_an_open_store_is_noticed_and_its_successor_untouched(
    path: Path, tmp_path: Path, how: str
) -> None:
    with open_store(tmp_path / "other.db") as another:
        another.create(owner=ME)
    with open_store(path) as store:
        session = store.create(owner=ME).id
        match how:
            case "unlinked":
                path.unlink()
            case "replaced":
                shutil.copy(tmp_path / "other.db", tmp_path / "copy.db")
                (tmp_path / "copy.db").rename(path)
            case "folder moved":
                path.parent.rename(tmp_path / "elsewhere")
            case _:
                path.parent.rename(tmp_path / "elsewhere")
                path.parent.write_text("not a folder")

        with pytest.raises(StoreUnavailable, match="moved, deleted or replaced"):
            touch(store, session, owner=ME)
        with pytest.raises(StoreUnavailable):
            store.list(owner=ME)

    if how == "replaced":
        assert path.read_bytes() == (tmp_path / "other.db").read_bytes()
    else:
        assert not path.exists()


def test_a_file_that_is_put_back_is_written_again(path: Path, tmp_path: Path) -> None:
    with open_store(path) as store:
        session = store.create(owner=ME).id
        path.parent.rename(tmp_path / "elsewhere")
        with pytest.raises(StoreUnavailable):
            touch(store, session, owner=ME)

        (tmp_path / "elsewhere").rename(path.parent)

        assert touch(store, session, owner=ME).activity == 1


# --- locks ----------------------------------------------------------------------------------------------------------


@contextmanager
def a_process_within_a_verb(path: Path) -> Iterator[int]:
    """Another process that is in the middle of a transaction until the block ends; its number."""
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=hold, args=(path, theirs))
    process.start()
    theirs.close()
    assert ours.poll(PATIENCE)
    ours.recv()
    yield process.pid or 0
    ours.send("go on")
    process.join(PATIENCE)
    assert process.exitcode == 0


def hold(path: Path, pipe: "Connection[Any, Any]", when: str = "at once") -> None:
    clock = GateClock()
    with open_sqlite(path, clock=clock) as store, ThreadPoolExecutor(1) as thread:
        if when == "when told":
            pipe.send("ready")
            pipe.recv()
        with clock.shut():
            held = thread.submit(store.create, owner="another")
            assert clock.entered.wait(PATIENCE)
            pipe.send("within")
            pipe.recv()
        held.result(PATIENCE)


def test_a_verb_that_cannot_begin_in_time_names_the_holder_and_never_runs_later(path: Path) -> None:
    with open_sqlite(path, wait_seconds=2.0) as store:
        session = store.create(owner=ME).id
        with a_process_within_a_verb(path) as pid:
            with pytest.raises(StoreUnavailable, match=f"process {pid}"):
                touch(store, session, owner=ME)
            assert store.session(session, owner=ME).activity == 0, "reads go on"

    with open_sqlite(path) as store:
        assert touch(store, session, owner=ME).activity == 1


def test_a_stored_verb_returns_with_a_full_log_while_another_process_has_the_lock(path: Path) -> None:
    clock = GateClock()
    ours, theirs = PROCESSES.Pipe()
    with (
        open_sqlite(path, clock=clock) as store,
        open_sqlite(path) as reader,
        ThreadPoolExecutor(1) as thread,
    ):
        session = store.create(owner=ME).id
        nearly_full = [store.record(session, [m.user("x" * 900_000)], owner=ME).session for _ in range(4)]
        process = PROCESSES.Process(target=hold, args=(path, theirs, "when told"))
        process.start()
        assert ours.poll(PATIENCE)
        assert ours.recv() == "ready"
        with clock.shut():
            verb = thread.submit(store.record, session, [m.user("x" * 900_000)], owner=ME)
            assert clock.entered.wait(PATIENCE)
            ours.send("go")
            until_all_wait_in_line(reader, session)
        assert ours.poll(PATIENCE)
        assert ours.recv() == "within"

        try:
            assert verb.result(PATIENCE).session.length == len(nearly_full) + 1
        finally:
            ours.send("go on")
            process.join(PATIENCE)


def test_a_store_that_cannot_be_opened_in_time_names_the_holder(path: Path) -> None:
    open_sqlite(path).close()

    with a_process_within_a_verb(path) as pid, pytest.raises(StoreUnavailable, match=f"process {pid}"):
        open_sqlite(path, wait_seconds=2.0)


def test_a_process_without_write_permission_rejects_verbs_and_releases_the_lock(
    path: Path, other: WorkerProcesses
) -> None:
    with open_sqlite(path, wait_seconds=5) as store:
        session = store.create(owner=ME).id

        assert other.all(write_without_room, path, session) == [("StoreUnavailable", 0, 1)]

        assert touch(store, session, owner=ME).activity == 2


def write_without_room(_: int, path: Path, session: SessionId) -> tuple[str, int, int]:
    """The result of a verb while this process cannot write, of a read then, and of a verb afterwards."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open_sqlite(path) as store:
        store.session(session, owner=ME)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        try:
            refusal = name_of_error(lambda: touch(store, session, owner=ME))
            seen = store.session(session, owner=ME).activity
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        return refusal, seen, touch(store, session, owner=ME).activity


def test_a_store_closes_even_while_another_process_keeps_the_lock(path: Path) -> None:
    store = open_sqlite(path, wait_seconds=2.0)
    turn = store.submit(Address.chat("matrix", "group", chat="one"), "hi", owner=ME, start=True).turn

    with a_process_within_a_verb(path):
        store.close()

    with open_sqlite(path) as store:
        assert isinstance(store.turn(turn.id, owner=ME).outcome, Interrupted)


# --- creation -------------------------------------------------------------------------------------------------------


def test_remains_of_a_process_that_died_creating_a_store_are_removed(path: Path) -> None:
    locks = Path(f"{path}.locks")
    locks.mkdir(parents=True)
    for name in ("new", "new-journal", "new-wal", "new-shm"):
        (locks / name).write_bytes(b"half of something")

    session = old_store(path)
    assert [file.name for file in locks.glob("new*")] == []

    (locks / "new").hardlink_to(path)
    with open_store(path) as store:
        assert store.messages(session, owner=ME).messages[0].text == "kept"
    assert [file.name for file in locks.glob("new*")] == []


IN_A_FOLDER_THAT_CANNOT_BE_READ = """
import os, sys
from pathlib import Path
from backstay import open_store
from backstay.errors import StoreUnavailable

folder, uid = Path(sys.argv[1]), int(sys.argv[2])
if os.geteuid() == 0:
    os.setgroups([])
    os.seteuid(uid)
try:
    open_store(folder / "store.db").close()
except StoreUnavailable as error:
    print(error.args[0])
folder.chmod(0o700)
print(sorted(os.listdir(folder / "store.db.locks")))
open_store(folder / "store.db").close()
"""


def test_a_new_store_is_not_acknowledged_before_its_folder_is_synced() -> None:
    # In a folder without read permission, files can be made, but their names cannot be synced.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "store.db.locks").mkdir(mode=0o700)
        for given in (folder / "store.db.locks", folder):
            account().give(given)
        folder.chmod(0o300)
        ran = subprocess.run(
            [sys.executable, "-c", IN_A_FOLDER_THAT_CANNOT_BE_READ, name, str(account().uid)],
            capture_output=True,
            text=True,
            check=False,
        )

    assert ran.stderr == ""
    assert ran.stdout == f"{name}/store.db cannot be created: Permission denied\n['write']\n"


def test_the_log_of_a_deleted_database_is_not_played_back_into_a_new_one(path: Path, other: WorkerProcesses) -> None:
    process = PROCESSES.Process(target=record_and_die, args=(path,))
    process.start()
    process.join(PATIENCE)
    assert Path(f"{path}-wal").stat().st_size
    path.unlink()

    with open_store(path) as store:
        assert store.list(owner=ME).sessions == ()
        store.create(owner=ME)

    assert other.all(audit, path) == [[]]


def record_and_die(path: Path) -> None:
    open_store(path).record(Address.chat("matrix", "group", chat="one"), [m.user("gone")], owner=ME)
    die()


def test_processes_that_open_a_new_store_at_once_find_the_same_one(path: Path) -> None:
    with WorkerProcesses(10) as workers:
        workers.all(create_one, path)

    with open_store(path) as store:
        assert len(store.list(owner=ME).sessions) == 10
    assert {file.name for file in Path(f"{path}.locks").iterdir()} == {"write", "pause", "use"}


def create_one(_: int, path: Path) -> None:
    with open_store(path) as store:
        store.create(owner=ME)


# --- migrations -----------------------------------------------------------------------------------------------------

NEWEST = shipped()[-1].number
NEXT = SqliteMigration(
    NEWEST + 1, "more.sql", "CREATE TABLE more (number INTEGER); SELECT 1; INSERT INTO more VALUES (1);"
)
BROKEN = SqliteMigration(
    NEWEST + 2, "broken.sql", "CREATE TABLE half (number INTEGER); INSERT INTO nowhere VALUES (1);"
)


def old_store(path: Path) -> SessionId:
    with open_store(path) as store:
        return store.record(Address.chat("matrix", "group", chat="one"), [m.user("kept")], owner=ME).session.id


def test_a_migration_makes_a_backup_first(path: Path, other: WorkerProcesses) -> None:
    session = old_store(path)

    open_sqlite(path, steps=(*shipped(), NEXT)).close()

    (backup,) = [file for file in path.parent.iterdir() if "before" in file.name and file.is_file()]
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert other.all(answer, path, "SELECT number FROM more") == [[(1,)]]
    with open_store(backup) as store:
        assert store.messages(session, owner=ME).messages[0].text == "kept"


def test_a_migration_that_fails_leaves_the_schema_and_data_of_the_one_before(
    path: Path, other: WorkerProcesses
) -> None:
    session = old_store(path)

    with pytest.raises(SchemaMismatch, match=r"broken\.sql: no such table: nowhere"):
        open_sqlite(path, steps=(*shipped(), NEXT, BROKEN))

    assert other.all(answer, path, "PRAGMA user_version") == [[(NEXT.number,)]]
    assert other.all(answer, path, "SELECT name FROM sqlite_schema WHERE name = 'half'") == [[]]
    with open_sqlite(path, steps=(*shipped(), NEXT)) as store:
        assert store.messages(session, owner=ME).messages[0].text == "kept"


def test_processes_that_open_an_old_database_at_once_migrate_it_once(path: Path) -> None:
    old_store(path)

    with WorkerProcesses(6) as workers:
        workers.all(open_with_second, path)

        assert workers.all(answer, path, "SELECT number FROM more") == [[(1,)]] * 6


def test_processes_that_open_and_close_at_once_are_never_refused(path: Path) -> None:
    with WorkerProcesses(6) as workers:
        refused = workers.all(open_often, path, 60)

    assert refused == [[]] * 6


def open_often(_: int, path: Path, times: int) -> list[str]:
    """All errors of opening the store, writing to it and closing it this often."""
    errors = []
    for _ in range(times):
        try:
            with open_store(path) as store:
                store.create(owner=ME)
        except Exception as error:  # noqa: BLE001  # whatever it was, the test must see it
            errors.append(repr(error))
    return errors


def test_a_log_that_appears_and_disappears_is_not_an_error(path: Path) -> None:
    old_store(path)
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=make_and_remove, args=(Path(f"{path}-wal"), theirs))
    process.start()
    try:
        assert ours.poll(PATIENCE)
        for _ in range(1000):
            refuse_foreign_file(path, shipped())
    finally:
        ours.send("stop")
        process.join(PATIENCE)


def make_and_remove(file: Path, pipe: "Connection[Any, Any]") -> None:
    """Create the file and remove it, repeatedly, until stopped."""
    pipe.send("ready")
    while not pipe.poll():
        file.write_text("x")
        file.unlink()


def test_an_older_version_rejects_a_store_that_a_newer_one_migrated(path: Path) -> None:
    old_store(path)
    open_sqlite(path, steps=(*shipped(), NEXT)).close()

    with pytest.raises(SchemaMismatch, match=f"schema {NEXT.number}"):
        open_store(path)


def open_with_second(_: int, path: Path) -> None:
    open_sqlite(path, steps=(*shipped(), NEXT)).close()


def answer(_: int, path: Path, sql: str) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(60_000)  # Another process may be closing the file.
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


# --- disks ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def counted(path: Path) -> Iterator[tuple[Store, Counts]]:
    """A store that has written before, and the counts of its disk from then on."""
    counts = Counts()
    with Disk(counts) as disk, open_sqlite(path, disk=disk) as store:
        turn = store.submit(store.create(owner=ME).id, "warm up", owner=ME, start=True).opened
        assert turn is not None
        store.finish(turn, Completed())
        counts.forget()
        yield store, counts


def test_a_recorded_turn_costs_exactly_one_sync(counted: tuple[Store, Counts]) -> None:
    store, counts = counted
    session = store.list(owner=ME).sessions[0].id

    store.record(session, [m.user("x" * 500), m.assistant("y" * 1500)], owner=ME)

    assert counts.syncs == 1


def test_a_new_address_with_its_first_turn_costs_exactly_one_sync(counted: tuple[Store, Counts]) -> None:
    store, counts = counted

    store.record(Address.chat("telegram", "dm", chat="1"), [m.user("x" * 500), m.assistant("y" * 1500)], owner=ME)
    assert counts.syncs == 1

    store.submit(Address.chat("telegram", "dm", chat="2"), "hello", owner=ME, start=True)
    assert counts.syncs == 2

    store.resolve(Address.chat("telegram", "dm", chat="3"), owner=ME)
    assert counts.syncs == 3


def test_a_lookup_of_a_known_address_costs_no_sync(path: Path) -> None:
    counts, clock, where = Counts(), ManualClock(), Address.chat("telegram", "dm", chat="1")
    with Disk(counts) as disk, open_sqlite(path, disk=disk, clock=clock) as store:
        store.resolve(where, owner=ME)
        counts.forget()

        for _ in range(3):
            clock.advance(1)
            store.resolve(where, owner=ME)
        assert counts.syncs == 0

        store.resolve(where, owner=ME, ttl=Ttl(idle=60))
        assert counts.syncs == 1, "a time to live survives the power"
        clock.advance(1)
        store.resolve(where, owner=ME)
        assert counts.syncs == 2, "and so does its postponed end"


def test_a_streamed_turn_costs_exactly_two_syncs_and_one_per_tool_boundary(
    counted: tuple[Store, Counts],
) -> None:
    store, counts = counted
    turn = store.submit(store.list(owner=ME).sessions[0].id, "go on", owner=ME, start=True).opened
    assert turn is not None
    assert counts.syncs == 1

    for number in range(20):
        turn = store.checkpoint(turn, [Text(f"word {number} ")]).open
    assert counts.syncs == 1, "deltas survive the process, not the power"

    turn = store.checkpoint(turn, [ToolCall("c1", "look", {})]).open
    turn = store.checkpoint(turn, [ToolResult("c1", "seen")]).open
    assert counts.syncs == 3

    store.finish(turn, Completed(), bodies=[Text("done")])
    assert counts.syncs == 4


def test_a_long_stream_costs_one_sync_per_mebibyte(counted: tuple[Store, Counts]) -> None:
    store, counts = counted
    turn = store.submit(store.list(owner=ME).sessions[0].id, "go on", owner=ME, start=True).opened
    assert turn is not None
    counts.forget()

    for _ in range(22):
        turn = store.checkpoint(turn, [Text("x" * (1 << 17))]).open

    # The log is copied back now and then, which is synced too; the proofs show the syncs of checkpoints.
    assert counts.syncs >= 2
    assert len(turn.unsynced) == 22 % 9


def test_reading_and_renewing_nothing_costs_no_sync_that_is_not_needed(counted: tuple[Store, Counts]) -> None:
    store, counts = counted
    session = store.list(owner=ME).sessions[0].id

    store.session(session, owner=ME)
    store.messages(session, owner=ME)
    store.events_after(session, owner=ME)
    store.pin(session, False, owner=ME)

    assert (counts.syncs, counts.writes) == (0, 0)


def test_the_log_does_not_grow_with_the_number_of_writes(path: Path) -> None:
    with open_sqlite(path) as store:
        session = store.create(owner=ME).id
        for number in range(40):
            store.record(session, [m.user(f"{number} " * 200_000)], owner=ME)
            store.session(session, owner=ME)

        assert path.with_name("store.db-wal").stat().st_size < path.stat().st_size / 2


def test_a_full_disk_refuses_writes_answers_reads_and_recovers_without_reopening(path: Path) -> None:
    quota = Quota()
    with Disk(quota) as disk, open_sqlite(path, disk=disk) as store:
        session = store.record(store.create(owner=ME).id, [m.user("before")], owner=ME).session.id
        quota.limit = quota.used + 100_000

        refused = 0
        for number in range(20):
            try:
                store.record(session, [m.user(f"{number}" * 10_000)], owner=ME)
            except StoreFull:
                refused += 1
        stored = store.session(session, owner=ME).length
        assert refused
        assert stored == 1 + 20 - refused
        assert [message.position for message in store.messages(session, owner=ME).messages] == list(range(stored))

        quota.limit = None
        assert store.record(session, [m.user("after")], owner=ME).session.length == stored + 1


@pytest.mark.parametrize("what", ["read_only", "read_only_log"])
def test_a_store_that_was_read_only_for_a_moment_is_written_without_reopening(path: Path, what: str) -> None:
    fault = Fault((Sync,))
    with Disk(fault) as disk, open_sqlite(path, disk=disk) as store:
        session = store.create(owner=ME).id
        setattr(disk, what, True)
        fault.arm(1)
        with pytest.raises(StoreUnavailable):
            touch(store, session, owner=ME)  # The writer closes its connection, and must open another.

        for _ in range(2):
            with pytest.raises(StoreReadOnly, match="cannot be written"):
                touch(store, session, owner=ME)
            assert store.session(session, owner=ME).activity == 0, "reads go on"

        setattr(disk, what, False)
        assert touch(store, session, owner=ME).activity == 1


def test_a_store_that_could_not_be_opened_leaves_nothing_open_and_opens_later(path: Path) -> None:
    old_store(path)
    with Disk() as disk:
        disk.read_only = True
        for _ in range(2):
            with pytest.raises(StoreReadOnly):
                open_sqlite(path, disk=disk)
        assert open_files(path) == []

        disk.read_only = False
        with open_sqlite(path, disk=disk) as store:
            store.create(owner=ME)


def test_an_error_of_a_failed_open_keeps_no_file_open(path: Path) -> None:
    old_store(path)
    fault = Fault((Read,))
    kept = []
    with Disk(fault) as disk:
        for number in count(1):
            fault.arm(number)
            try:
                open_sqlite(path, disk=disk).close()
            except StoreError as error:
                kept.append(error)
            assert open_files(path) == []
            if fault.struck < number:
                break
    assert len(kept) > 5


def test_a_store_closes_completely_though_closing_a_handle_fails(path: Path) -> None:
    store = open_sqlite(path)
    log = Path(f"{path}-wal")
    for handle in path_handles(log):
        os.close(handle)  # Closing it again raises EBADF.

    store.close()
    assert open_files(path) == []


def path_handles(file: Path) -> list[int]:
    """The descriptors of this process that name the file and cannot read it."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # The one that lists them is closed by now.
            flags = int(Path(f"/proc/self/fdinfo/{entry.name}").read_text().split("flags:")[1].split()[0], 8)
            if entry.readlink() == file and flags & os.O_PATH:
                found.append(int(entry.name))
    return found


def test_a_store_on_a_full_disk_closes_and_releases_its_turn(path: Path, other: WorkerProcesses) -> None:
    quota = Quota()
    with Disk(quota) as disk:
        store = open_sqlite(path, disk=disk)
        turn = store.submit(store.create(owner=ME).id, "hi", owner=ME, start=True).turn
        quota.limit = quota.used

        store.close()

    assert other.all(outcome_of, path, turn.id) == ["Interrupted"]


def outcome_of(_: int, path: Path, turn: TurnId) -> str:
    with open_sqlite(path) as store:
        return type(store.turn(turn, owner=ME).outcome).__name__


# --- real disks, in a mount namespace of their own ------------------------------------------------------------------


@pytest.fixture
def on_a_disk(tmp_path: Path) -> Callable[[str, str], str]:
    """Run a program on its own disk, mounted in a private namespace; returns its output."""
    unshare = shutil.which("unshare")
    space = [unshare or "", "--map-root-user", "--mount", "--propagation", "private"]
    if unshare is None or subprocess.run([*space, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount a disk for a test")
    folder = tmp_path / "disk"
    folder.mkdir()

    def run(size: str, program: str) -> str:
        mount = f"mount -t tmpfs -o size={size} none {folder}"
        command = f'{mount} && cd {folder} && exec "$0" -c "$1"'
        done = subprocess.run(
            [*space, "sh", "-c", command, sys.executable, program],
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


FILL_UP = """
from pathlib import Path
from backstay import open_store
from backstay.errors import StoreFull
from backstay.model import message as m

with open_store("store.db") as store:
    session = store.create(owner="me").id
    ballast = Path("ballast")
    ballast.write_bytes(bytes(600_000))
    stored = 0
    try:
        while True:
            store.record(session, [m.user("x" * 20_000)], owner="me")
            stored += 1
    except StoreFull:
        assert store.session(session, owner="me").length == stored
    ballast.unlink()
    store.record(session, [m.user("there is room again")], owner="me")
    print(store.session(session, owner="me").length - stored)
"""
READ_ONLY = """
import os
from pathlib import Path
from subprocess import run
from backstay import open_store
from backstay.errors import StoreReadOnly

open_store("store.db").close()
run(["mount", "-o", "remount,ro", os.getcwd()], check=True)
for name in ("store.db", "new.db", "new/new.db"):
    try:
        open_store(name)
    except StoreReadOnly as error:
        print(name, error.hint)
"""


def test_a_disk_that_is_really_full_refuses_writes_and_recovers_without_reopening(
    on_a_disk: Callable[[str, str], str],
) -> None:
    assert on_a_disk("2m", FILL_UP).split() == ["1"]


def test_a_disk_that_is_really_read_only_is_named_as_such(on_a_disk: Callable[[str, str], str]) -> None:
    answers = on_a_disk("2m", READ_ONLY).splitlines()

    assert [line.split()[0] for line in answers] == ["store.db", "new.db", "new/new.db"]
    assert all("Make the disk writable" in line for line in answers)


@pytest.mark.parametrize("url", ["postgresql://localhost/chat", "postgres://localhost/chat", "sqlite:///chat.db"])
def test_a_url_that_became_a_path_is_refused_and_makes_no_folder(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError, match="was a URL"):
        open_store(Path(url))

    assert list(tmp_path.iterdir()) == []


NO_FILES: dict[str, object] = {
    "a setting that is missing": None,
    "a number": 5,
    "bytes": b"chat.db",
    "nothing": "",
    "memory": ":memory:",
    "a NUL": "chat\0.db",
    "no text": "chat\udcff.db",
}


@pytest.mark.parametrize("where", NO_FILES.values(), ids=NO_FILES)
def test_an_invalid_path_is_rejected_and_creates_nothing(
    where: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError):
        open_store(where)

    assert list(tmp_path.iterdir()) == []


def test_an_impossible_file_name_is_rejected_with_our_error(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="too long"):
        open_store(tmp_path / ("x" * 300))

    assert list(tmp_path.iterdir()) == []


def test_a_pipe_or_a_folder_is_rejected_and_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()

    for name in ("pipe", "folder"):
        with pytest.raises(SchemaMismatch, match="left untouched"):
            open_store(tmp_path / name)

    assert {file.name for file in tmp_path.iterdir()} == {"pipe", "folder"}


def test_a_store_closes_cleanly_while_threads_still_use_it(path: Path) -> None:
    def ask(store: Store, question: Callable[[Store], object], asked: threading.Semaphore) -> None:
        with suppress(StoreUnavailable):
            while True:
                question(store)
                asked.release()

    def version(store: Store) -> object:
        return store.version()

    def sessions(store: Store) -> object:
        return store.list(owner=ME)

    with ThreadPoolExecutor(4) as threads:
        for _ in range(40):
            asked = threading.Semaphore(0)
            store = open_sqlite(path)
            asking = [threads.submit(ask, store, question, asked) for question in (version, sessions) * 2]
            for _ in asking:
                assert asked.acquire(timeout=PATIENCE)
            store.close()
            for one in asking:
                one.result(PATIENCE)
            assert open_files(path) == []
