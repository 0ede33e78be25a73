"""Servers in separate processes: killed, stopped, several at once; and their effects on clients."""

import json
import os
import select
import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest

import backstay
from backstay.model.ids import SessionId
from tests.cli.forked_command import PATIENCE
from tests.databases import Place, let_leases_lapse
from tests.server.agents import echo
from tests.server.api_calls import accepted, answered, new_session, text_of, until, until_ended, until_said
from tests.server.server_process import HERE, ServerProcess, agent_options, serving
from tests.server.stream_reader import Frame, Reader

AGENTS = agent_options("tests.server.agents:echo", "patient=tests.server.agents:patient")


def events_in(frames: list[Frame]) -> list[dict[str, Any]]:
    return [frame.data for frame in frames if frame.name == "event"]


def log_of(client: httpx2.Client, session: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = client.get(f"/api/sessions/{session}/events", params={"limit": 1000}).json()[
        "events"
    ]
    return events


def test_a_server_killed_again_and_again_loses_nothing_and_its_readers_resume(tmp_path: Path, path: Place) -> None:
    heard: list[Frame] = []
    last: str | None = None
    session, sent = "", 0
    for _ in range(4):
        with serving(tmp_path, "--db", str(path), *AGENTS, environment=HERE) as served, served.client() as client:
            session = session or new_session(client)
            with Reader(served.port, served.token, f"sessions={session}", last) as reader:
                # The first words of the turn are on the wire when the server dies.
                turn = accepted(client, session, f"many {40 + sent}", key=f"turn {sent}")
                for frame in reader.frames():
                    heard.append(frame)
                    last = frame.id
                    if frame.data["turn"] == turn and frame.data["body"]["kind"] == "text_delta":
                        break
                served.kill()
                let_leases_lapse(path, served.pid)
            sent += 1

    with serving(tmp_path, "--db", str(path), *AGENTS, environment=HERE) as served, served.client() as client:
        final = answered(client, session, "the end")
        with Reader(served.port, served.token, f"sessions={session}", last) as reader:
            heard += reader.until("event", kind="turn_ended", turn=final)
        assert events_in(heard) == log_of(client, session)
        messages = client.get(f"/api/sessions/{session}/messages").json()["messages"]
        asked = [text_of(message) for message in messages if message["role"] == "user"]
        assert asked == [*(f"many {40 + number}" for number in range(4)), "the end"]


def test_a_request_whose_answer_was_lost_is_repeated_and_happens_once(tmp_path: Path, path: Place) -> None:
    with serving(tmp_path, "--db", str(path), *AGENTS, environment=HERE) as served, served.client() as client:
        session = new_session(client)
        first = accepted(client, session, "once", key="k")
        served.kill()
        let_leases_lapse(path, served.pid)
    with serving(tmp_path, "--db", str(path), *AGENTS, environment=HERE) as served, served.client() as client:
        assert accepted(client, session, "once", key="k") == first


def test_a_server_with_open_streams_and_a_running_turn_stops_cleanly(tmp_path: Path, path: Place) -> None:
    with serving(tmp_path, "--db", str(path), *AGENTS, environment=HERE | {"BACKSTAY_GRACE_SECONDS": "0.5"}) as served:
        with served.client() as client:
            session = new_session(client)
            turn = accepted(client, session, "secret words", agent="patient")
            until_said(client, session, "listening ")
            readers = [Reader(served.port, served.token, f"sessions={session}&feed=true") for _ in range(5)]
            for reader in readers:
                next(reader.frames())

            assert served.terminate() == 0

        for reader in readers:
            with reader:
                list(reader.frames())
                assert reader.comments[-1] == ": bye"
        lines = served.log()
        assert any(line["event"] == "turn ended" and line["outcome"] == "interrupted" for line in lines)
        assert "secret words" not in json.dumps(lines)
        assert served.token not in json.dumps(lines)
    with serving(tmp_path, "--db", str(path), *AGENTS, environment=HERE) as served, served.client() as client:
        assert client.get(f"/api/turns/{turn}").json()["outcome"]["type"] == "interrupted"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_server_stopped_right_after_its_start_stops_cleanly(tmp_path: Path, path: Place, workers: str) -> None:
    with serving(tmp_path, "--db", str(path), "--workers", workers, *AGENTS, environment=HERE) as served:
        assert served.terminate() == 0
        assert "Traceback" not in (tmp_path / "server.log").read_text()


def workers_of(served: ServerProcess) -> set[int]:
    """The processes that the supervisor has started."""
    children = Path(f"/proc/{served.pid}/task/{served.pid}/children").read_text().split()
    return {int(child) for child in children}


def test_workers_share_sessions_and_one_that_dies_is_replaced(tmp_path: Path, path: Place) -> None:
    with serving(tmp_path, "--db", str(path), "--workers", "2", *AGENTS, environment=HERE) as served:
        with served.client() as client:
            session = new_session(client)
            until(lambda: len(workers_of(served)) == 2, "two workers")
            heard: list[Frame] = []
            last: str | None = None
            # Every request is a new connection, which any free worker accepts.
            for number in range(12):
                with served.client() as fresh, Reader(served.port, served.token, f"sessions={session}", last) as reader:
                    turn = accepted(fresh, session, f"question {number}")
                    heard += reader.until("event", kind="turn_started", turn=turn)
                    heard += reader.until("event", kind="turn_ended", turn=turn)
                    last = heard[-1].id
            assert events_in(heard) == log_of(client, session)

            running = accepted(client, session, "wait", agent="patient")
            until_said(client, session, "listening ")
            doomed = workers_of(served)
            for worker in doomed:
                os.kill(worker, signal.SIGKILL)
                let_leases_lapse(path, worker)
            until(lambda: len(workers_of(served) - doomed) == 2, "two other workers")
        with served.client() as client:
            until(lambda: client.get("/readyz").status_code == 200, "a worker that serves")
            until_ended(client, session, running)
            assert client.get(f"/api/turns/{running}").json()["outcome"]["type"] == "interrupted"
            answered(client, session, "and on it goes")
            total = "backstay_turns_total"
            until(lambda: total in client.get("/metrics").text, "counts of all workers")
        assert served.terminate() == 0


def test_workers_do_not_outlive_their_supervisor(tmp_path: Path, path: Place) -> None:
    with serving(tmp_path, "--db", str(path), "--workers", "2", *AGENTS, environment=HERE) as served:
        with served.client() as client:
            new_session(client)
        until(lambda: len(workers_of(served)) == 2, "two workers")
        workers = workers_of(served)
        ends = [os.pidfd_open(worker) for worker in workers]
        served.kill()
        for end in ends:
            assert select.select([end], [], [], PATIENCE)[0]
            os.close(end)


def test_a_killed_supervisor_leaves_no_temporary_folder(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    here = {**HERE, "TMPDIR": str(temporary)}
    arguments = ("--db", str(tmp_path / "chat.db"), "--workers", "2", *AGENTS)
    with serving(tmp_path, *arguments, environment=here) as served:
        with served.client() as client:
            new_session(client)
        until(lambda: len(workers_of(served)) == 2, "two workers")
        ends = [os.pidfd_open(worker) for worker in workers_of(served)]
        served.kill()
        for end in ends:
            assert select.select([end], [], [], PATIENCE)[0]
            os.close(end)
    assert list(temporary.iterdir()) == []


def test_a_start_removes_the_temporary_folder_of_a_server_that_was_killed_entirely(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    here = {**HERE, "TMPDIR": str(temporary)}
    arguments = ("--db", str(tmp_path / "chat.db"), "--workers", "2", *AGENTS)
    with serving(tmp_path, *arguments, environment=here) as served:
        until(lambda: len(workers_of(served)) == 2, "two workers")
        workers = workers_of(served)
        os.kill(served.pid, signal.SIGSTOP)
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        served.kill()
    [left] = temporary.iterdir()
    with serving(tmp_path, *arguments, environment=here) as served:
        until(lambda: len(workers_of(served)) == 2, "two workers")
        assert left not in temporary.iterdir()
        assert len(list(temporary.iterdir())) == 1
        assert served.terminate() == 0
    assert list(temporary.iterdir()) == []


def test_a_turn_of_the_library_in_another_process_streams_to_clients(tmp_path: Path, path: Place) -> None:
    with serving(tmp_path, "--db", str(path), *AGENTS, environment=HERE) as served, served.client() as client:
        session = new_session(client)
        with Reader(served.port, served.token, f"sessions={session}") as reader:
            with backstay.open_blocking(path, agent=echo) as app:
                turn = app.session(SessionId(session)).send("said in a script")
                turn.outcome()
            heard = reader.until("event", kind="turn_ended", turn=turn.id)
        assert events_in(heard) == log_of(client, session)
