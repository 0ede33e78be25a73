"""The server is lost, and comes back or is followed by its standby: all that was acknowledged is there, once."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backstay import Store, open_store
from backstay.model import message as m
from backstay.model.ids import SessionId
from tests.postgres.crowd import Hosts, check, talk
from tests.postgres.speaker import ME, PATIENCE, request
from tests.servers.pair import Pair
from tests.servers.postgres import Home, Postgres

WRITERS = 4
# So many acknowledgements lie between two failovers.
DISTANCE = 40


@pytest.fixture
def pair(postgres_home: Home) -> Iterator[Pair]:
    with Pair(postgres_home) as pair:
        yield pair


class Progress:
    """How many verbs were acknowledged, by all writers together."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._acknowledged = 0

    def count(self) -> None:
        with self._condition:
            self._acknowledged += 1
            self._condition.notify_all()

    def reaches(self, number: int) -> None:
        with self._condition:
            assert self._condition.wait_for(lambda: self._acknowledged >= number, PATIENCE), self._acknowledged


def test_a_failover_loses_and_repeats_nothing_that_was_acknowledged(pair: Pair, rounds: int) -> None:
    name = pair.primary.database()
    progress, over = Progress(), threading.Event()
    with open_store(pair.url(name)) as store, ThreadPoolExecutor(WRITERS) as threads:
        sessions = [store.create(owner=ME).id for _ in range(WRITERS)]
        writers = [threads.submit(_write, store, session, progress, over) for session in sessions]
        try:
            for failover in range(1, rounds + 1):
                progress.reaches(failover * DISTANCE)
                pair.lose_primary()
                pair.promote()
            progress.reaches((rounds + 1) * DISTANCE)
        finally:
            over.set()
        acknowledged = [writer.result() for writer in writers]

    with open_store(pair.primary.url(name)) as store:
        for session, number in zip(sessions, acknowledged, strict=True):
            said = [message.text for message in store.messages(session, owner=ME).messages]
            assert said == [f"note {note}" for note in range(number)]
            assert store.session(session, owner=ME).turns == number


def test_turns_that_run_during_a_failover_end_once_with_all_that_was_stored(pair: Pair, tmp_path: Path) -> None:
    url = pair.url(pair.primary.database())

    def fail_over() -> None:
        pair.lose_primary()
        pair.promote()

    with Hosts(url, tmp_path / "diary") as hosts:
        endings = talk(url, turns=2, strikes=1, strike=fail_over)

    check(url, endings, hosts.begun(), server_lost=True)


def test_turns_that_run_while_the_server_is_killed_and_recovers_end_once(postgres_home: Home, tmp_path: Path) -> None:
    with Postgres(postgres_home) as server, Hosts(server.url(), tmp_path / "diary") as hosts:

        def crash() -> None:
            server.kill()
            server.start()

        endings = talk(server.url(), turns=2, strikes=3, strike=crash)

        check(server.url(), endings, hosts.begun(), server_lost=True)


def _write(store: Store, session: SessionId, progress: Progress, over: threading.Event) -> int:
    """Record notes, each until it is acknowledged; how many were."""
    number = 0
    while not over.is_set():
        request(store.record, session, [m.user(f"note {number}")], owner=ME, request_id=f"request {number}")
        progress.count()
        number += 1
    return number
