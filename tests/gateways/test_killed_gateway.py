"""Gateways are killed at random moments. The people in the chats see every question answered, and none answered twice.

Only two repetitions are allowed, and both show it: a part that may have arrived already has a mark, and a turn that was
killed says so before it is continued.
"""

import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from backstay import open_store
from backstay.model.session import SessionFilter
from tests.crash.sql_audit import audit
from tests.crash.worker_processes import WorkerProcesses
from tests.databases import Place
from tests.effort import tries
from tests.gateways.fake_telegram import FakeTelegram, fake_telegram

OWNER = "local"
# Many messages at once take a while to be stored: a kill finds some stored and some not.
FEW, MANY = 5, 40
ROUNDS = 6


@contextmanager
def gateway(place: Place, telegram: FakeTelegram) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that runs the gateway."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.gateways.gateway_program", str(place), telegram.url],
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def answered(telegram: FakeTelegram) -> set[str]:
    """The questions that the people have seen an answer to."""
    return {question_in(one.text) for one in telegram.seen if "you said: " in one.text}


def question_in(text: str) -> str:
    return text.partition("you said: ")[2].partition("\n")[0]


@pytest.mark.parametrize("seed", range(tries(1, 5, 50)))
def test_every_message_is_answered_through_kills(place: Place, seed: int) -> None:
    chance = random.Random(seed)
    asked: set[str] = set()
    with fake_telegram(seed=seed, chance=0.1) as telegram:
        for number in range(ROUNDS):
            # Two processes on one bot: one polls, the other one waits.
            with gateway(place, telegram) as process, gateway(place, telegram):
                count = FEW if number % 3 else MANY
                asked |= _ask(telegram, len(asked) + 1, count)
                # Killed at some step of receive, store and acknowledge, or of run, send and receipt.
                if count == MANY:
                    _wait_for_sessions(place, len(asked) - MANY + chance.randrange(1, MANY))
                else:
                    goal = chance.randrange(len(telegram.seen), len(telegram.seen) + FEW + 1)
                    telegram.wait_for(lambda goal=goal: len(telegram.seen) >= goal)  # type: ignore[misc]  # bound now
                process.send_signal(signal.SIGKILL)
                if number % 2:
                    # The other process takes over.
                    telegram.wait_for(lambda asked=frozenset(asked): answered(telegram) >= asked)  # type: ignore[misc]  # bound now
        with gateway(place, telegram):
            telegram.wait_for(lambda: answered(telegram) >= asked)

        assert answered(telegram) == asked
        whole = Counter(one.text for one in telegram.seen if one.text.startswith("you said: ") and "⚠️" not in one.text)
        assert {text: count for text, count in whole.items() if count > 1} == {}
    with open_store(place) as store:
        sessions = store.list(owner=OWNER, filter=SessionFilter(), limit=200).sessions
        assert len(sessions) == len(asked)
        inputs = Counter(
            message.text
            for session in sessions
            for message in store.messages(session.id, owner=OWNER).messages
            if message.role == "user"
        )
    assert inputs == Counter(asked)
    with WorkerProcesses(1) as auditor:
        assert auditor.all(audit, place) == [[]]


def _wait_for_sessions(place: Place, count: int) -> None:
    """Wait until so many chats have a session: the gateway is receiving then."""
    pause, end = threading.Event(), time.monotonic() + 60
    with open_store(place) as store:
        while store.usage(owner=OWNER).sessions < count:
            assert time.monotonic() < end, f"fewer than {count} sessions"
            pause.wait(0.001)


def _ask(telegram: FakeTelegram, first: int, count: int) -> set[str]:
    """People write, each in a chat of their own: an interrupted turn is continued if no message waits behind it."""
    for chat in range(first, first + count):
        telegram.write(f"question of {chat}", chat=chat, sender=chat)
    return {f"question of {chat}" for chat in range(first, first + count)}
