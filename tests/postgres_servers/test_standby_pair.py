"""A primary with a standby, and a pool, as tests of failover and pooling use them."""

import psycopg
import pytest

from tests.postgres_servers.pgbouncer import Pgbouncer
from tests.postgres_servers.postgres import Home, Postgres
from tests.postgres_servers.standby_pair import StandbyPair


def test_commits_survive_the_loss_of_several_primaries(postgres_home: Home) -> None:
    with StandbyPair(postgres_home) as pair:
        url = pair.url("postgres")
        _write(url, "CREATE TABLE things (number int)")
        for number in range(3):
            _write(url, f"INSERT INTO things VALUES ({number})")
            pair.lose_primary()
            with pytest.raises(psycopg.OperationalError):
                _write(url, "INSERT INTO things VALUES (100)")
            pair.promote()

        assert pair.primary.query("SELECT array_agg(number ORDER BY number) FROM things") == [([0, 1, 2],)]


def test_a_pooler_may_give_each_transaction_another_connection(
    postgres: Postgres, postgres_home: Home, database: str
) -> None:
    name = database.rpartition("/")[2]
    with (
        Pgbouncer(postgres_home, postgres.port) as pool,
        psycopg.connect(pool.url(name)) as one,
        psycopg.connect(pool.url(name)) as other,
    ):
        first = one.execute("SELECT pg_backend_pid()").fetchone()
        one.commit()

        assert other.execute("SELECT pg_backend_pid()").fetchone() == first


def _write(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())
