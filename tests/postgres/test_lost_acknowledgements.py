"""A connection is lost around a COMMIT: the store looks the result up, and no write is lost or repeated."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from backstay import Store, open_store
from backstay.model.turn import Accepted
from tests.postgres.acknowledged_writer import ME, PATIENCE, AcknowledgedWriter, check, retry_while_leased
from tests.postgres_servers.faulty_proxy import Fault, Proxy
from tests.postgres_servers.postgres import Postgres

LOST = (Fault.UNANSWERED, Fault.SENT)


def test_a_lost_answer_to_a_commit_loses_nothing_and_repeats_nothing(
    postgres: Postgres, name: str, any_network: Proxy, rounds: int
) -> None:
    network, dice = any_network, random.Random(1)
    with open_store(network.url(name)) as store:
        speaker = AcknowledgedWriter(store, dice)
        network.plan = lambda _: dice.choice([None, None, *LOST, Fault.UNSENT])
        while sum(network.struck[fault] for fault in LOST) < _many(rounds):
            speaker.act()

    _look(postgres, name, [speaker])


@pytest.mark.parametrize("connections", ["16", "2"])
def test_answers_lost_by_many_at_once_lose_nothing_and_repeat_nothing(
    postgres: Postgres, name: str, network: Proxy, rounds: int, connections: str
) -> None:
    """Also when there are no more connections than answers that are lost."""
    dice = random.Random(2)
    with open_store(network.url(name, connections=connections)) as store, ThreadPoolExecutor(8) as threads:
        speakers = [AcknowledgedWriter(store, random.Random(number)) for number in range(8)]
        network.plan = lambda _: dice.choice([None, None, None, *LOST, Fault.UNSENT])

        def talk(speaker: AcknowledgedWriter) -> None:
            while sum(network.struck[fault] for fault in LOST) < _many(rounds):
                speaker.act()

        for done in [threads.submit(talk, speaker) for speaker in speakers]:
            done.result()

    _look(postgres, name, speakers)


def test_a_commit_that_arrives_after_its_client_looked_it_up_is_not_repeated(
    postgres: Postgres, name: str, network: Proxy, rounds: int
) -> None:
    dice = random.Random(3)
    with open_store(network.url(name)) as store:
        speaker = AcknowledgedWriter(store, dice)
        network.plan = lambda _: dice.choice([None, None, Fault.LATE])
        while network.struck[Fault.LATE] < 3 * rounds:
            speaker.act()

    _look(postgres, name, [speaker])


def test_a_request_whose_answer_was_lost_is_found_when_it_is_repeated(
    postgres: Postgres, name: str, network: Proxy
) -> None:
    def submit(store: Store) -> Accepted:
        return store.submit(session, "are you there?", owner=ME, request_id="once")

    with _hasty(network.url(name)) as store, ThreadPoolExecutor() as threads:
        session = retry_while_leased(store.create, owner=ME).id
        network.plan = lambda _: Fault.SILENT
        waiting = threads.submit(submit, store)
        network.await_strikes(1)

        # The machine of the caller is lost with its network; another machine repeats the request.
        network.refuse()
        with open_store(postgres.url(name)) as other:
            again = submit(other)
            waiting.exception(PATIENCE)

            assert again.repeated
            assert [turn.id for turn in other.waiting(session, owner=ME)] == [again.turn.id]


def test_a_transaction_of_a_lost_host_blocks_others_only_briefly(postgres: Postgres, name: str, network: Proxy) -> None:
    with _hasty(network.url(name)) as lost, ThreadPoolExecutor() as threads:
        session = retry_while_leased(lost.create, owner=ME).id
        network.plan = lambda _: Fault.HELD
        held = threads.submit(lost.rename, session, "never", owner=ME)
        network.await_strikes(1)

        with open_store(postgres.url(name)) as store:
            assert retry_while_leased(store.rename, session, "at last", owner=ME).title == "at last"
        network.refuse()
        assert held.exception(PATIENCE) is not None

        with open_store(postgres.url(name)) as store:
            assert store.session(session, owner=ME).title == "at last"


def _hasty(url: str) -> Store:
    """A store that does not wait for long."""
    return open_store(url, wait_seconds=3.0, lease_seconds=3.0)


def _many(rounds: int) -> int:
    """Fifty in every test run, thousands with `make crash`."""
    return 50 * max(1, rounds // 3)


def _look(postgres: Postgres, name: str, speakers: list[AcknowledgedWriter]) -> None:
    """Read over another connection, without the fault."""
    with open_store(postgres.url(name)) as store:
        check(store, speakers)
