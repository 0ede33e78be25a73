"""Hosts are killed and replaced while many sessions are answered: every turn ends once, and nothing is lost."""

from pathlib import Path

from backstay.model.turn import Completed, Interrupted
from tests.postgres.crowd import Hosts, check, talk
from tests.servers.postgres import Postgres, at

# For every hundred sessions that are sent so many turns, so many hosts are killed.
TURNS, KILLS = 2, 6


def test_hosts_that_are_killed_lose_no_input_and_end_every_turn_once(
    postgres: Postgres, name: str, door: int, tmp_path: Path, rounds: int
) -> None:
    times = max(1, rounds // 6)
    with Hosts(at(door, name), tmp_path / "diary") as hosts:
        endings = talk(at(door, name), turns=TURNS * times, strikes=KILLS * times, strike=hosts.kill_one)

    check(postgres.url(name), endings, hosts.begun())
    outcomes = {type(outcome) for turns in endings.values() for _, outcome in turns}
    assert outcomes == {Completed, Interrupted}, "the kills must hit somebody, and not everybody"
