"""Wake sockets: a commit wakes the other processes that listen, and no fault of a socket affects a write."""

import os
import shutil
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from backstay import Store, open_store
from backstay.store.sqlite.files.wake_sockets import MOST_PEERS
from tests.crash.worker_processes import PATIENCE, PROCESSES, WorkerProcesses, die, open_files

ME = "me"


class Listener:
    """A store that listens for hints."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._hinted = threading.Event()
        store.watch_hints(self._hinted.set)
        # The first call means that the socket is open.
        self.wait()

    def wait(self) -> None:
        assert self._hinted.wait(PATIENCE)
        self._hinted.clear()

    @property
    def hinted(self) -> bool:
        return self._hinted.is_set()


@contextmanager
def listening(path: Path) -> Iterator[Listener]:
    with open_store(path) as store:
        yield Listener(store)


def sockets(path: Path) -> list[Path]:
    return sorted(Path(f"{path}.locks").glob("wake_*"))


def commit_and_listen(rank: int, path: Path) -> None:
    with listening(path) as here:
        here.store.create(owner=ME)


def commit_only(rank: int, path: Path) -> None:
    with open_store(path) as store:
        store.create(owner=ME)


def listen_and_die(path: Path) -> None:
    Listener(open_store(path))
    die()


def killed_listener(path: Path) -> None:
    process = PROCESSES.Process(target=listen_and_die, args=(path,))
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == -9


def receiver(path: Path, name: str) -> socket.socket:
    """The socket of another process, without the process."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with address(path, name) as bound:
        made.bind(bound)
    made.setblocking(False)
    return made


@contextmanager
def address(path: Path, name: str) -> Iterator[str]:
    """The address of a socket beside the database, however long the path is."""
    folder = os.open(f"{path}.locks", os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{name}"
    finally:
        os.close(folder)


def received(one: socket.socket) -> int:
    count = 0
    try:
        while one.recv(1):
            count += 1
    except BlockingIOError:
        return count
    raise AssertionError("a hint is not empty")


def test_a_commit_wakes_a_store_that_listens_in_another_process(path: Path, other: WorkerProcesses) -> None:
    with listening(path) as here:
        for count in (1, 2):
            other.all(commit_and_listen, path)
            here.wait()
            assert len(here.store.list(owner=ME).sessions) == count


def test_a_commit_wakes_another_store_of_the_same_process(path: Path) -> None:
    with listening(path) as here, listening(path) as there:
        there.store.create(owner=ME)
        here.wait()


def test_a_store_that_does_not_listen_sends_no_hints_and_has_no_socket(path: Path, other: WorkerProcesses) -> None:
    with listening(path) as here:
        (own,) = sockets(path)
        with receiver(path, "wake_another") as peer:
            other.all(commit_only, path)
            assert received(peer) == 0
        assert sockets(path) == [own.with_name("wake_another"), own]
        assert not here.hinted


def test_a_transaction_that_changed_nothing_sends_no_hint(path: Path) -> None:
    with listening(path) as here, receiver(path, "wake_another") as peer:
        here.store.reap()
        assert received(peer) == 0
        here.store.create(owner=ME)
        assert received(peer) == 1


def test_only_the_owner_of_the_file_can_use_a_socket(path: Path) -> None:
    with listening(path):
        (own,) = sockets(path)
        assert stat.S_IMODE(own.stat().st_mode) == 0o600
        assert stat.S_IMODE(own.parent.stat().st_mode) == 0o700


def test_a_closed_store_leaves_no_socket_no_thread_and_no_descriptor(path: Path) -> None:
    with open_store(path):
        before = open_files(path)
        with listening(path):
            assert sockets(path)
        assert sockets(path) == []
        assert sorted(open_files(path)) == sorted(before)
    assert [thread for thread in threading.enumerate() if thread.name == "backstay-hints"] == []


def test_the_socket_of_a_killed_process_is_removed_by_the_next_commit(path: Path, other: WorkerProcesses) -> None:
    killed_listener(path)
    (stale,) = sockets(path)
    with listening(path) as here:
        here.store.create(owner=ME)
        assert stale not in sockets(path)
        # Live sockets are still found.
        other.all(commit_and_listen, path)
        here.wait()


def test_the_socket_of_a_killed_process_is_removed_by_maintenance(path: Path) -> None:
    killed_listener(path)
    with listening(path) as here, open_store(path) as store:
        living = [one for one in sockets(path) if one in sockets_of(here.store, path)]
        store.collect()
        assert sockets(path) == living != []


def sockets_of(store: Store, path: Path) -> list[Path]:
    return [one for one in sockets(path) if store.worker in one.name]


def test_a_flood_of_garbage_is_harmless(path: Path, other: WorkerProcesses) -> None:
    with listening(path) as here, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as flood:
        flood.setblocking(False)
        (own,) = sockets(path)
        version = here.store.version()
        with address(path, own.name) as target:
            for number in range(10_000):
                with suppress(BlockingIOError):
                    flood.sendto(b"\x00garbage" * (number % 7), target)
        assert here.store.version() == version
        other.all(commit_and_listen, path)
        here.wait()
        assert here.store.version() != version


def test_a_peer_that_does_not_receive_delays_no_commit(path: Path) -> None:
    with listening(path) as here, receiver(path, "wake_stuck") as peer:
        for _ in range(1_000):
            here.store.create(owner=ME)
        assert 0 < received(peer) < 1_000


@pytest.mark.parametrize("kind", ["file", "folder", "stream socket"])
def test_a_foreign_file_in_the_place_of_a_socket_does_not_affect_commits(path: Path, kind: str) -> None:
    with listening(path) as here, ExitStack() as stack:
        place = Path(f"{path}.locks", "wake_odd")
        if kind == "file":
            place.write_text("not a socket")
        elif kind == "folder":
            place.mkdir()
        else:
            stream = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            stream.bind(stack.enter_context(address(path, "wake_odd")))
        with receiver(path, "wake_peer") as peer:
            here.store.create(owner=ME)
            assert received(peer) == 1


def test_a_commit_is_announced_to_a_bounded_number_of_processes(path: Path) -> None:
    with listening(path) as here, ExitStack() as stack:
        peers = [stack.enter_context(receiver(path, f"wake_{number:03}")) for number in range(MOST_PEERS + 3)]
        here.store.create(owner=ME)
        assert [received(peer) for peer in peers] == [1] * MOST_PEERS + [0] * 3


@pytest.mark.parametrize("length", [90, 107, 110, 300])
def test_a_path_of_any_length_can_have_sockets(tmp_path: Path, other: WorkerProcesses, length: int) -> None:
    folder = tmp_path
    while len(str(folder)) < length:
        folder = folder / "a-folder-with-a-long-name"
    path = folder / "store.db"
    with listening(path) as here:
        other.all(commit_and_listen, path)
        here.wait()


def test_writes_continue_without_the_folder_of_the_sockets(path: Path) -> None:
    with listening(path) as here, receiver(path, "wake_another"):
        here.store.create(owner=ME)
        for own in sockets(path):
            own.unlink()
        here.store.create(owner=ME)
        assert len(here.store.list(owner=ME).sessions) == 2


def test_a_forked_child_leaves_the_socket_to_its_parent(path: Path, other: WorkerProcesses) -> None:
    parent, line = PROCESSES.Pipe()
    process = PROCESSES.Process(target=listen_over_a_fork, args=(path, line))
    process.start()
    assert parent.poll(PATIENCE)
    assert parent.recv() == "forked"
    other.all(commit_and_listen, path)
    assert parent.poll(PATIENCE)
    assert parent.recv() == "hinted"
    process.join(PATIENCE)
    assert process.exitcode == 0
    assert sockets(path) == []


def listen_over_a_fork(path: Path, line: "Connection[Any, Any]") -> None:
    with listening(path) as here:
        child = os.fork()
        if child == 0:
            here.store.close()
            os._exit(0)
        os.waitpid(child, 0)
        line.send("forked")
        here.wait()
        line.send("hinted")


def test_a_forked_child_does_not_keep_the_socket_of_its_dead_parent_alive(path: Path) -> None:
    ours, line = PROCESSES.Pipe()
    process = PROCESSES.Process(target=fork_and_die, args=(path, line))
    process.start()
    assert ours.poll(PATIENCE)
    child = ours.recv()
    process.join(PATIENCE)
    assert Path(f"/proc/{child}").exists(), "the child outlives its parent"
    with listening(path) as here:
        here.store.create(owner=ME)
        assert sockets(path) == sockets_of(here.store, path)
    ours.send("end")


def fork_and_die(path: Path, line: "Connection[Any, Any]") -> None:
    Listener(open_store(path))
    child = os.fork()
    if child == 0:
        line.send(os.getpid())
        line.poll(PATIENCE)
        os._exit(0)
    die_when_forked(child)


def die_when_forked(child: int) -> None:
    assert Path(f"/proc/{child}").exists()
    die()


def remove_folder(path: Path) -> None:
    shutil.rmtree(f"{path}.locks")


def remove_sockets(path: Path) -> None:
    for one in sockets(path):
        one.unlink()


@pytest.mark.parametrize("remove", [remove_sockets, remove_folder])
def test_a_store_whose_socket_was_removed_closes(path: Path, remove: Callable[[Path], None]) -> None:
    with listening(path) as here:
        here.store.create(owner=ME)
        remove(path)
    assert [thread for thread in threading.enumerate() if thread.name == "backstay-hints"] == []
