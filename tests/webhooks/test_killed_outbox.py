"""The senders of webhooks are killed at random moments. The receiver is told of every end of a turn, under one id."""

import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from backstay import open_store
from backstay.store import Store
from backstay.store.commands import gateway_commands
from backstay.store.commands.gateways import notification_commands
from tests.crash.sql_audit import audit
from tests.crash.worker_processes import WorkerProcesses
from tests.databases import Place
from tests.webhooks.fake_receiver import FakeReceiver, fake_receiver

OWNER = "local"
ROUNDS, TURNS = 3, 12
# Requests that a sender has under way at once: so many may be repeated after a kill.
UNDER_WAY = 8


@contextmanager
def teller(place: Place, receiver: FakeReceiver) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that answers and tells."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.webhooks.webhook_program", str(place), receiver.url],
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_every_end_of_a_turn_is_told_through_kills(place: Place) -> None:
    chance = random.Random(7)
    asked: set[str] = set()
    with fake_receiver(chance=0.1, seed=7) as receiver, open_store(place) as store:
        # The webhook begins with what happens from now on.
        proof = store.run(gateway_commands.open_gateway("webhook/ops", owner=OWNER))
        assert proof is not None
        store.run(gateway_commands.close_gateway(store.run(notification_commands.begin_notifications(proof))))
        for number in range(ROUNDS):
            # Two processes on one webhook: one sends, the other one waits.
            with teller(place, receiver) as process, teller(place, receiver):
                asked |= {_ask(store, number) for _ in range(TURNS)}
                goal = len(receiver.accepted) + chance.randrange(TURNS)
                receiver.wait_for(lambda goal=goal: len(receiver.accepted) >= goal)  # type: ignore[misc]  # bound now
                process.send_signal(signal.SIGKILL)
                if number % 2:
                    # The other process takes over.
                    _wait(receiver, asked)
        with teller(place, receiver):
            _wait(receiver, asked)

        told = Counter(body["turn"]["id"] for body in receiver.bodies("turn_ended"))
        assert told == Counter(asked)
        assert receiver.forged == 0
        # Whoever was killed had some requests under way; and some answers were cut off.
        repeated = len(receiver.accepted) - len(asked)
        assert repeated <= 2 * ROUNDS * UNDER_WAY + receiver.cut
    with WorkerProcesses(1) as auditor:
        assert auditor.all(audit, place) == [[]]


def _ask(store: Store, number: int) -> str:
    session = store.create(owner=OWNER)
    return store.submit(session.id, f"question {number}", owner=OWNER, agent="default").turn.id


def _wait(receiver: FakeReceiver, asked: set[str]) -> None:
    receiver.wait_for(lambda: {got.body["turn"]["id"] for got in receiver.accepted} >= asked)
