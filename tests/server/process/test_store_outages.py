"""A server whose store is unavailable: it waits if the fault can be temporary, and ends otherwise."""

import errno
import fcntl
import json
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import httpx2
import psycopg
import pytest
from anyio import to_thread

from backstay.errors import (
    CommitUnknown,
    ConfigError,
    CorruptRecord,
    SchemaMismatch,
    StoreArriving,
    StoreFull,
    StoreMoved,
    StoreReadOnly,
    StoreUnavailable,
)
from backstay.server.process.readiness import WorkersWaiting
from backstay.server.process.store_retry import can_heal, retry_opening
from backstay.store import Store, open_store
from backstay.store.sqlite.connection import APPLICATION_ID, MOVING_ID
from tests.cli.forked_command import PATIENCE, ForkedCommand
from tests.open_sqlite import open_sqlite
from tests.postgres_servers.postgres import Home, Postgres
from tests.server.api_calls import answered, new_session, until
from tests.server.server_process import HERE, ServerProcess, agent_options, serve_process, serving
from tests.simulated_disk import Disk, Read, Step

AGENTS = agent_options("tests.server.agents:echo")


def events(folder: Path) -> list[dict[str, Any]]:
    """The server's log so far."""
    lines = (folder / "server.log").read_text().splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


def logged(folder: Path, event: str) -> bool:
    return any(line["event"] == event for line in events(folder))


def workers_of(served: ServerProcess) -> set[int]:
    children = Path(f"/proc/{served.pid}/task/{served.pid}/children").read_text().split()
    return {int(child) for child in children}


def until_two_serve(folder: Path, served: ServerProcess) -> None:
    """Wait until both workers accept connections."""
    complete = "Application startup complete."

    def serve() -> bool:
        return len(workers_of(served)) == 2 and sum(line["event"] == complete for line in events(folder)) >= 2

    until(serve, "two workers that serve")


def kill_one(served: ServerProcess) -> int:
    """Kill one worker; returns the other one."""
    doomed, left = sorted(workers_of(served))
    os.kill(doomed, signal.SIGKILL)
    return left


def statuses_of(served: ServerProcess, session: str) -> list[int]:
    """The answers to twenty requests with a connection each, so that every process that accepts would take some."""
    statuses = []
    for _ in range(20):
        with served.client() as client:
            statuses.append(client.get(f"/api/sessions/{session}").status_code)
    return statuses


@contextmanager
def two_workers(folder: Path, database: str | Path) -> Iterator[tuple[ServerProcess, str]]:
    """A server with two workers that both accept connections, and a session; it must end cleanly."""
    with serving(folder, "--db", str(database), "--workers", "2", *AGENTS, environment=HERE) as served:
        with served.client() as client:
            session = new_session(client)
        until_two_serve(folder, served)
        yield served, session
        assert served.terminate() == 0


@contextmanager
def held(database: Path) -> Iterator[None]:
    """Inside the block every write to the file waits for this process."""
    with Path(f"{database}.locks", "write").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def arriving(database: Path) -> Iterator[None]:
    """Inside the block every process that opens the file is refused at once, as while a move to it is unfinished."""
    _set_application(database, MOVING_ID)
    yield
    _set_application(database, APPLICATION_ID)


def _set_application(database: Path, number: int) -> None:
    file = apsw.Connection(str(database))
    file.set_busy_timeout(int(PATIENCE * 1000))
    file.execute(f"PRAGMA application_id = {number}")
    file.close()


def ready(url: str) -> httpx2.Response:
    with httpx2.Client(base_url=url, timeout=PATIENCE, trust_env=False, verify=False) as client:
        return client.get("/readyz")


def status_of(url: str, path: str) -> int:
    with httpx2.Client(base_url=url, timeout=PATIENCE, trust_env=False, verify=False) as client:
        return client.get(path).status_code


def until_a_worker_waits(folder: Path) -> None:
    until(lambda: logged(folder, "waiting for the store"), "a worker that waits")


def until_ready(served: ServerProcess) -> None:
    until(lambda: ready(served.url).status_code == 200, "a server that is ready")


@contextmanager
def no_free_descriptors(served: ServerProcess) -> Iterator[None]:
    """Inside the block the supervisor cannot start a worker."""
    limits = resource.prlimit(served.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (4, limits[1]))
    yield
    resource.prlimit(served.pid, resource.RLIMIT_NOFILE, limits)


def until_a_start_fails(folder: Path) -> None:
    until(lambda: logged(folder, "worker could not be started"), "a start that failed")


def until_there_are_two(served: ServerProcess) -> None:
    until(lambda: len(workers_of(served)) == 2, "two workers")


@pytest.fixture
def own_postgres(postgres_home: Home) -> Iterator[Postgres]:
    """A server that this test may stop."""
    with Postgres(postgres_home) as server:
        yield server


def test_a_worker_that_meets_a_held_lock_waits_while_the_others_serve(tmp_path: Path) -> None:
    database = tmp_path / "chat.db"
    with two_workers(tmp_path, database) as (served, session):
        with held(database):
            healthy = kill_one(served)
            until_a_worker_waits(tmp_path)

            assert statuses_of(served, session) == [200] * 20
            answer = ready(served.url)
            assert answer.status_code == 200
            assert answer.json()["waiting_workers"][0]["code"] == "store_unavailable"
            assert healthy in workers_of(served)

        until(lambda: logged(tmp_path, "the store is open"), "a worker that serves again")
        until(lambda: "waiting_workers" not in ready(served.url).json(), "nobody waits")
        with served.client() as client:
            answered(client, session, "and on it goes")


def test_a_server_whose_log_was_deleted_reports_it_and_rejects_requests(tmp_path: Path) -> None:
    database = tmp_path / "chat.db"
    with serving(tmp_path, "--db", str(database), *AGENTS, environment=HERE) as served:
        with served.client() as client:
            session = new_session(client)
            answered(client, session, "kept")
            Path(f"{database}-wal").unlink()

            until(lambda: ready(served.url).status_code == 503, "a server that is not ready")
            assert ready(served.url).json()["code"] == "store_replaced"
            refused = client.post(f"/api/sessions/{session}/turns", json={"content": "lost?"})
            assert (refused.status_code, refused.json()["code"]) == (503, "store_replaced")
            assert status_of(served.url, "/healthz") == 200
        assert served.terminate() == 0

    with serving(tmp_path, "--db", str(database), *AGENTS, environment=HERE) as served, served.client() as client:
        assert ready(served.url).status_code == 200
        answered(client, session, "and on it goes")


def test_a_worker_that_dies_while_postgresql_is_away_waits_for_it(tmp_path: Path, own_postgres: Postgres) -> None:
    with two_workers(tmp_path, own_postgres.url(own_postgres.database())) as (served, session):
        own_postgres.stop()
        healthy = kill_one(served)
        until_a_worker_waits(tmp_path)

        answer = ready(served.url)
        assert answer.status_code == 503
        assert answer.json()["code"] == "store_unavailable"
        assert status_of(served.url, "/healthz") == 200
        assert healthy in workers_of(served)

        own_postgres.start()
        until(lambda: logged(tmp_path, "the store is open"), "a worker that serves again")
        until_ready(served)
        with served.client() as client:
            answered(client, session, "and on it goes")


def test_a_server_whose_workers_cannot_open_the_store_answers_503(tmp_path: Path) -> None:
    database = tmp_path / "chat.db"
    with two_workers(tmp_path, database) as (served, session):
        with arriving(database):
            killed = workers_of(served)
            for worker in killed:
                os.kill(worker, signal.SIGKILL)
            # A worker that is just being killed may still take a connection, and lose it.
            until(lambda: not killed & workers_of(served), "the end of both workers")
            answer = ready(served.url)
            assert answer.status_code == 503
            assert answer.json()["code"] == "store_arriving"
            assert str(tmp_path) not in answer.text
            assert status_of(served.url, "/healthz") == 200
            with served.client() as client:
                refused = client.get(f"/api/sessions/{session}")
                assert (refused.status_code, refused.json()["code"]) == (503, "store_arriving")

        until_ready(served)
        # From the first answer of a worker on, only workers answer.
        assert statuses_of(served, session) == [200] * 20


def test_a_worker_that_cannot_be_started_for_lack_of_descriptors_is_started_later(tmp_path: Path) -> None:
    with two_workers(tmp_path, tmp_path / "chat.db") as (served, session):
        with no_free_descriptors(served):
            kill_one(served)
            until_a_start_fails(tmp_path)
            assert statuses_of(served, session) == [200] * 20
        until_there_are_two(served)


def test_a_supervisor_without_workers_and_descriptors_waits_for_descriptors(tmp_path: Path) -> None:
    with two_workers(tmp_path, tmp_path / "chat.db") as (served, _):
        with no_free_descriptors(served):
            for worker in workers_of(served):
                os.kill(worker, signal.SIGKILL)
            until_a_start_fails(tmp_path)
        until_there_are_two(served)
        until_ready(served)


# --- the first start ------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until_answers(url: str, status: int) -> httpx2.Response:
    """Ask `/readyz` until it is answered with this status."""
    answers: list[httpx2.Response] = []

    def answers_so() -> bool:
        with suppress(httpx2.TransportError):
            answers.append(ready(url))
        return bool(answers) and answers[-1].status_code == status

    until(answers_so, f"/readyz answers {status}")
    return answers[-1]


@contextmanager
def started_before_its_database(folder: Path, server: Postgres, workers: str) -> Iterator[tuple[ForkedCommand, str]]:
    """A server that was started while its database server was stopped, and where it answers."""
    database = server.url(server.database())
    server.stop()
    port = free_port()
    arguments = ("--db", database, "--port", str(port), "--workers", workers, *AGENTS)
    with serve_process(folder, *arguments, environment=HERE) as process:
        yield process, f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_server_that_starts_before_its_database_waits_for_it(
    tmp_path: Path, own_postgres: Postgres, workers: str
) -> None:
    with started_before_its_database(tmp_path, own_postgres, workers) as (process, url):
        told = until_answers(url, 503).json()
        assert told["status"] == "not ready"
        assert told["code"] == "store_unavailable"
        assert status_of(url, "/healthz") == 200
        assert status_of(url, "/api/sessions") == 503
        waiting = next(line for line in events(tmp_path) if line["event"] == "waiting for the store")
        assert f":{own_postgres.port}" in waiting["error"]

        own_postgres.start()
        assert process.stdout is not None
        served = ServerProcess(process, json.loads(process.stdout.readline()), tmp_path)
        until_answers(url, 200)
        with served.client() as client:
            answered(client, new_session(client), "hello")
        assert served.terminate() == 0


def test_a_server_that_waits_for_its_database_stops_cleanly(tmp_path: Path, own_postgres: Postgres) -> None:
    with started_before_its_database(tmp_path, own_postgres, "1") as (process, url):
        until_answers(url, 503)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        assert "Traceback" not in (tmp_path / "server.log").read_text()


# --- permanent faults -----------------------------------------------------------------------------------------------


def make_newer(url: str) -> None:
    """Make the store look as if a later version had migrated it."""
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO backstay_schema (number) VALUES (9999)")


def test_a_store_of_a_newer_version_ends_the_server_at_its_start(
    tmp_path: Path, new_database: Callable[[], str]
) -> None:
    database = new_database()
    open_store(database).close()
    make_newer(database)
    with serve_process(tmp_path, "--db", database, "--workers", "2", *AGENTS, environment=HERE) as process:
        assert process.wait(PATIENCE) == 1
        assert "has schema 9999" in (tmp_path / "server.log").read_text()


def forget_migrations(database: str) -> None:
    """Make the store look as if it had only the first migration: the next one finds its own tables there."""
    if database.startswith("postgresql:"):
        with psycopg.connect(database) as connection:
            connection.execute("DELETE FROM backstay_schema WHERE number > 1")
    else:
        file = apsw.Connection(database)
        file.execute("PRAGMA user_version = 1")
        file.close()


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_store_that_no_migration_fits_ends_the_server_at_its_start(
    tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    # A separate database, because no other test could use it afterwards.
    database = str(tmp_path / "chat.db") if engine == "sqlite" else request.getfixturevalue("new_database")()
    open_store(database).close()
    forget_migrations(database)
    with serve_process(tmp_path, "--db", database, *AGENTS, environment=HERE) as process:
        assert process.wait(PATIENCE) == 1
        assert "cannot be changed by 0002_" in (tmp_path / "server.log").read_text()


def test_a_worker_that_meets_a_store_of_a_newer_version_ends_the_server(
    tmp_path: Path, new_database: Callable[[], str]
) -> None:
    database = new_database()
    with serve_process(tmp_path, "--db", database, "--workers", "2", *AGENTS, environment=HERE) as process:
        assert process.stdout is not None
        served = ServerProcess(process, json.loads(process.stdout.readline()), tmp_path)
        until_two_serve(tmp_path, served)
        make_newer(database)
        kill_one(served)
        assert process.wait(PATIENCE) == 1
        lines = (tmp_path / "server.log").read_text().splitlines()
        assert any("worker cannot serve" in line and "has schema 9999" in line for line in lines)


async def ignore(_: WorkersWaiting) -> None:
    """No observer is notified that a worker waits."""


async def test_a_read_error_while_a_store_is_opened_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    open_sqlite(path).close()
    reads = count(1)

    def fail_once(step: Step) -> None:
        # SQLite reports EIO as damage if it comes after the first read of a connection.
        if isinstance(step, Read) and next(reads) == 5:
            raise apsw.CorruptError("injected: EIO")

    with Disk(fail_once) as disk:

        async def attempt() -> Store:
            return await to_thread.run_sync(lambda: open_sqlite(path, disk=disk))

        (await retry_opening(attempt, ignore)).close()
    assert next(reads) > 5


async def test_a_store_that_stays_damaged_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    open_sqlite(path).close()
    pages = path.read_bytes()
    path.write_bytes(pages[:4096] + bytes(len(pages) - 4096))

    async def attempt() -> Store:
        return await to_thread.run_sync(lambda: open_sqlite(path))

    with pytest.raises(CorruptRecord):
        await retry_opening(attempt, ignore)


@pytest.mark.parametrize(
    ("error", "heals"),
    [
        (StoreUnavailable(), True),
        (StoreFull(), True),
        (StoreReadOnly(), True),
        (StoreArriving(), True),
        (CommitUnknown(), True),
        (OSError(errno.EMFILE, "too many open files"), True),
        (MemoryError(), True),
        (ConfigError(), False),
        (SchemaMismatch(), False),
        (CorruptRecord("chat.db", "damaged"), False),
        (StoreMoved(), False),
        (TypeError(), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_only_a_fault_that_can_heal_is_waited_for(error: Exception, heals: bool) -> None:
    assert can_heal(error) is heals
