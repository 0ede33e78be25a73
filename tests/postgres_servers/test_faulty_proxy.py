"""The network of these tests works until a test breaks it, and each fault does what its name says."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.postgres_servers.faulty_proxy import Fault, Proxy
from tests.postgres_servers.postgres import Postgres


@pytest.fixture
def name(postgres: Postgres) -> Iterator[str]:
    name = postgres.database()
    postgres.query("CREATE TABLE things (number int)", database=name)
    yield name
    postgres.drop(name)


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[Proxy]:
    with Proxy(postgres.port) as proxy:
        yield proxy


@pytest.mark.parametrize(
    ("fault", "committed"),
    [(Fault.UNSENT, False), (Fault.SENT, True), (Fault.UNANSWERED, True), (Fault.LATE, True)],
)
@pytest.mark.parametrize("pipelined", [False, True])
def test_a_connection_is_cut_around_a_commit(
    postgres: Postgres, proxy: Proxy, name: str, *, fault: Fault, committed: bool, pipelined: bool
) -> None:
    proxy.plan = lambda number: fault if number == 2 else None
    with psycopg.connect(proxy.url(name)) as connection:
        _insert(connection, 1, pipelined=pipelined)
        with pytest.raises(psycopg.OperationalError):
            _insert(connection, 2, pipelined=pipelined)

    assert proxy.struck == {fault: 1}
    if fault is Fault.LATE:
        # What came before the COMMIT may not have been executed yet, so nothing is locked that could be waited for.
        _await_things(postgres, name, [1, 2])
    _await_idle(postgres, name)
    assert _things(postgres, name) == ([1, 2] if committed else [1])


def test_an_answer_can_be_swallowed_while_the_connection_seems_to_live(
    postgres: Postgres, proxy: Proxy, name: str
) -> None:
    proxy.plan = lambda _: Fault.SILENT
    with ThreadPoolExecutor() as threads, psycopg.connect(proxy.url(name)) as connection:
        waiting = threads.submit(_insert, connection, 1)
        proxy.await_strikes(1)

        assert _things(postgres, name) == [1]
        assert not waiting.done()
        proxy.cut()
        assert isinstance(waiting.exception(), psycopg.OperationalError)


def test_a_commit_can_be_held_with_the_transaction_open(postgres: Postgres, proxy: Proxy, name: str) -> None:
    proxy.plan = lambda _: Fault.HELD
    with ThreadPoolExecutor() as threads, psycopg.connect(proxy.url(name)) as connection:
        waiting = threads.submit(_insert, connection, 1)
        proxy.await_strikes(1)

        open_ones = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND state = 'idle in transaction'"
        assert postgres.query(open_ones, name) == [(1,)]
        assert not waiting.done()
        proxy.cut()
        assert isinstance(waiting.exception(), psycopg.OperationalError)

    _await_idle(postgres, name)
    assert _things(postgres, name) == []


def test_a_stalled_network_continues_where_it_stopped(postgres: Postgres, proxy: Proxy, name: str) -> None:
    with ThreadPoolExecutor() as threads, psycopg.connect(proxy.url(name)) as connection:
        proxy.stall()
        waiting = threads.submit(_insert, connection, 1)
        assert _things(postgres, name) == []
        assert not waiting.done()

        proxy.go_on()
        waiting.result()

    assert _things(postgres, name) == [1]


def test_a_stalled_network_that_is_cut_delivers_nothing_later(postgres: Postgres, proxy: Proxy, name: str) -> None:
    with ThreadPoolExecutor() as threads, psycopg.connect(proxy.url(name)) as connection:
        proxy.stall()
        waiting = threads.submit(_insert, connection, 1)
        proxy.cut()
        assert isinstance(waiting.exception(), psycopg.OperationalError)
        proxy.go_on()

    _await_idle(postgres, name)
    assert _things(postgres, name) == []


def test_a_host_that_refuses_can_accept_again_on_the_same_port(proxy: Proxy, name: str) -> None:
    with psycopg.connect(proxy.url(name)) as connection:
        proxy.refuse()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(proxy.url(name))

    proxy.accept()
    with psycopg.connect(proxy.url(name)) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def _insert(connection: "psycopg.Connection[tuple[object, ...]]", number: int, *, pipelined: bool = False) -> None:
    if pipelined:
        with connection.pipeline():
            connection.execute("INSERT INTO things VALUES (%s)", (number,))
            connection.commit()
    else:
        connection.execute("INSERT INTO things VALUES (%s)", (number,))
        connection.commit()


def _things(postgres: Postgres, name: str) -> list[int]:
    return [number for (number,) in postgres.query("SELECT number FROM things ORDER BY 1", database=name)]


def _await_things(postgres: Postgres, name: str, expected: list[int]) -> None:
    """Until these can be read."""
    end = time.monotonic() + 60
    while _things(postgres, name) != expected and time.monotonic() < end:
        threading.Event().wait(0.05)


def _await_idle(postgres: Postgres, name: str) -> None:
    """Wait until no transaction that has written to the table is open."""
    postgres.query("ALTER TABLE things ALTER number SET DEFAULT 0", database=name)
