"""Hosts are killed and replaced while many sessions are answered: every turn ends once, and nothing is lost."""

from pathlib import Path

from backstay.model.turn import Completed, Interrupted
from tests.effort import tries
from tests.postgres.hosts.many_sessions import Hosts, check, talk
from tests.postgres_servers.postgres import Postgres, at

# The number of turns of each session, and of killed hosts meanwhile.
TURNS, KILLS = 2, tries(3, 6, 6)


def test_hosts_that_are_killed_lose_no_input_and_end_every_turn_once(
    postgres: Postgres, name: str, server_port: int, tmp_path: Path, rounds: int
) -> None:
    times = max(1, rounds // 6)
    with Hosts(at(server_port, name), tmp_path) as hosts:
        endings = talk(
            at(server_port, name), turns=TURNS * times, strikes=KILLS * times, strike=hosts.kill_aimed, aim=hosts.aim
        )

    check(postgres.url(name), endings, hosts.begun())
    outcomes = {turn: outcome for turns in endings.values() for turn, outcome in turns}
    assert len(hosts.struck) == KILLS * times
    assert all(isinstance(outcomes[turn], Interrupted) for turn in hosts.struck)
    assert Completed() in outcomes.values(), "many turns end before the first kill"
