"""Shutdown: at any moment, a server stops cleanly and leaves nothing behind."""

import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from backstay.store import open_store
from tests.cli.forked_command import PATIENCE, ForkedCommand
from tests.effort import tries
from tests.server.api_calls import until
from tests.server.process.test_store_outages import arriving, events, free_port, held, logged, until_answers
from tests.server.server_process import HERE, agent_options, serve_process

AGENTS = agent_options("tests.server.agents:echo")
ROUNDS = tries(2, 12, 100)


def children_of(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def tell(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


Moment = Callable[[ForkedCommand, int, Path], None]


def when_it_listens(process: ForkedCommand, port: int, folder: Path) -> None:
    until(lambda: listens(port), "a server that listens")


def when_it_has_announced_itself(process: ForkedCommand, port: int, folder: Path) -> None:
    assert process.stdout is not None
    assert process.stdout.readline()


def when_it_has_logged_a_line(process: ForkedCommand, port: int, folder: Path) -> None:
    until(lambda: bool(events(folder)), "a line of log")


def when_it_serves(process: ForkedCommand, port: int, folder: Path) -> None:
    until(lambda: logged(folder, "Application startup complete."), "a worker that serves")


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """The folder for temporary files of the server."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("everybody", [False, True], ids=["supervisor", "all processes"])
@pytest.mark.parametrize("workers", ["1", "4"])
@pytest.mark.parametrize(
    "moment", [when_it_listens, when_it_has_announced_itself, when_it_has_logged_a_line, when_it_serves]
)
def test_a_server_stops_cleanly_at_any_moment(
    tmp_path: Path, temporary: Path, moment: Moment, workers: str, everybody: bool
) -> None:
    port = free_port()
    arguments = ("--db", "chat.db", "--port", str(port), "--workers", workers, *AGENTS)
    with serve_process(tmp_path, *arguments, environment={**HERE, "TMPDIR": str(temporary)}) as process:
        moment(process, port, tmp_path)
        for pid in [*(children_of(process.pid) if everybody else []), process.pid]:
            tell(pid)
        assert process.wait(PATIENCE) == 0
        assert "Traceback" not in (tmp_path / "server.log").read_text()
    assert list(temporary.iterdir()) == []


def test_a_signal_before_the_handlers_are_installed_ends_the_process(tmp_path: Path, temporary: Path) -> None:
    environment = {**HERE, "TMPDIR": str(temporary)}
    with serve_process(tmp_path, "--db", "chat.db", "--workers", "4", *AGENTS, environment=environment) as process:
        tell(process.pid)
        assert process.wait(PATIENCE) in (0, -signal.SIGTERM)
    assert list(temporary.iterdir()) == []


def test_workers_that_end_during_the_stop_do_not_disturb_the_supervisor(tmp_path: Path, temporary: Path) -> None:
    workers = 8
    arguments = ("--db", "chat.db", "--workers", str(workers), *AGENTS)
    for number in range(ROUNDS):
        with serve_process(tmp_path, *arguments, environment={**HERE, "TMPDIR": str(temporary)}) as process:
            until(lambda pid=process.pid: len(children_of(pid)) == workers, "all workers")  # type: ignore[misc]
            everybody = children_of(process.pid)
            # Each round signals the supervisor after another worker.
            everybody.insert(1 + number * 5 % workers, process.pid)
            for pid in everybody:
                tell(pid)
            assert process.wait(PATIENCE) == 0, (tmp_path / "server.log").read_text()
        assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("workers", ["1", "4"])
def test_a_server_with_only_its_stand_in_stops_cleanly(tmp_path: Path, temporary: Path, workers: str) -> None:
    port, database = free_port(), tmp_path / "chat.db"
    open_store(database).close()
    arguments = ("--db", str(database), "--port", str(port), "--workers", workers, *AGENTS)
    with (
        held(database),
        serve_process(tmp_path, *arguments, environment={**HERE, "TMPDIR": str(temporary)}) as process,
    ):
        until_answers(f"http://127.0.0.1:{port}", 503)
        tell(process.pid)
        assert process.wait(PATIENCE) == 0
        assert "Traceback" not in (tmp_path / "server.log").read_text()
    assert list(temporary.iterdir()) == []


def test_a_supervisor_whose_workers_all_wait_stops_cleanly(tmp_path: Path, temporary: Path) -> None:
    port, database = free_port(), tmp_path / "chat.db"
    arguments = ("--db", str(database), "--port", str(port), "--workers", "4", *AGENTS)
    with serve_process(tmp_path, *arguments, environment={**HERE, "TMPDIR": str(temporary)}) as process:
        until_answers(f"http://127.0.0.1:{port}", 200)
        until(lambda: len(children_of(process.pid)) == 4, "all workers")
        with arriving(database):
            for worker in children_of(process.pid):
                os.kill(worker, signal.SIGKILL)
            until_answers(f"http://127.0.0.1:{port}", 503)
            for pid in [*children_of(process.pid), process.pid]:
                tell(pid)
            assert process.wait(PATIENCE) == 0
        assert "Traceback" not in (tmp_path / "server.log").read_text()
    assert list(temporary.iterdir()) == []
