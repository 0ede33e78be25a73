"""The server is lost, then restarts or is replaced by its standby: acknowledged writes are there, once."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from backstay import Address, Store, open_store
from backstay.model import message as m
from backstay.model.ids import SessionId
from backstay.model.session import Resolved
from backstay.model.turn import Recorded
from tests.postgres.acknowledged_writer import ME, PATIENCE, request
from tests.postgres.hosts.many_sessions import Hosts, check, talk
from tests.postgres_servers.postgres import Home, Postgres
from tests.postgres_servers.standby_pair import StandbyPair

WRITERS = 4
# The number of acknowledgements between two failovers.
DISTANCE = 40


# The server writes its log seldom, so that a crash loses many words that were stored without a sync.
LAZY = {"wal_writer_delay": "10s", "wal_writer_flush_after": "1MB"}


@pytest.fixture
def pair(postgres_home: Home) -> Iterator[StandbyPair]:
    with StandbyPair(postgres_home, settings=LAZY) as pair:
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


def test_a_failover_loses_and_repeats_nothing_that_was_acknowledged(pair: StandbyPair, rounds: int) -> None:
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


def test_a_write_missing_on_the_standby_is_never_acknowledged(pair: StandbyPair) -> None:
    with open_store(pair.url(pair.primary.database())) as store, ThreadPoolExecutor(2) as threads:
        session = store.create(owner=ME).id

        def note() -> Future[Recorded]:
            return threads.submit(
                request, store.record, session, [m.user("only once")], owner=ME, request_id="request 1"
            )

        with pair.losing_primary():
            first = note()
            _until(lambda: len(pair.waiting_for_standby()) == 1)
            [process] = pair.waiting_for_standby()
            # From here on it is visible on the primary only; its client has lost the connection.
            pair.primary.query("SELECT pg_terminate_backend(%s)", process)
            _until(lambda: first.done() or set(pair.waiting_for_standby()) - {process} != set())
            again = note()
            _until(lambda: again.done() or len(pair.waiting_for_standby()) == 2)
        pair.promote()

        assert first.result(PATIENCE).turn.id == again.result(PATIENCE).turn.id
        assert [message.text for message in store.messages(session, owner=ME).messages] == ["only once"]


def test_a_session_missing_on_the_standby_is_never_returned(pair: StandbyPair) -> None:
    with open_store(pair.url(pair.primary.database())) as store, ThreadPoolExecutor(2) as threads:
        store.create(owner=ME)  # It connects.

        def look_up() -> Future[Resolved]:
            return threads.submit(request, store.resolve, Address.chat("matrix", "group", chat="1"), owner=ME)

        with pair.losing_primary():
            first = look_up()
            _until(lambda: len(pair.waiting_for_standby()) == 1)
            [process] = pair.waiting_for_standby()
            # From here on the session is visible on the primary, and only there.
            pair.primary.query("SELECT pg_terminate_backend(%s)", process)
            _until(lambda: first.done() or set(pair.waiting_for_standby()) - {process} != set())
            again = look_up()
            _until(lambda: again.done() or len(pair.waiting_for_standby()) == 2)
        pair.promote()

        assert first.result(PATIENCE).session.id == again.result(PATIENCE).session.id
        assert store.session(again.result().session.id, owner=ME).state == "open"


def test_turns_that_run_during_a_failover_end_once_with_all_that_was_stored(pair: StandbyPair, tmp_path: Path) -> None:
    url = pair.url(pair.primary.database())

    def fail_over() -> None:
        pair.lose_primary()
        pair.promote()

    with Hosts(url, tmp_path) as hosts:
        endings = talk(url, turns=2, strikes=1, strike=fail_over)

    check(url, endings, hosts.begun(), server_lost=True)


def test_turns_that_run_while_the_server_is_killed_and_recovers_end_once(postgres_home: Home, tmp_path: Path) -> None:
    with Postgres(postgres_home, settings=LAZY) as server, Hosts(server.url(), tmp_path) as hosts:

        def crash() -> None:
            server.kill()
            server.start()

        endings = talk(server.url(), turns=2, strikes=3, strike=crash)

        check(server.url(), endings, hosts.begun(), server_lost=True)


def _until(claim: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE * 20)):
        if claim():
            return
        threading.Event().wait(0.05)
    raise AssertionError("it never came to this")


def _write(store: Store, session: SessionId, progress: Progress, over: threading.Event) -> int:
    """Record notes, each until it is acknowledged; how many were."""
    number = 0
    while not over.is_set():
        request(store.record, session, [m.user(f"note {number}")], owner=ME, request_id=f"{session} {number}")
        progress.count()
        number += 1
    return number
