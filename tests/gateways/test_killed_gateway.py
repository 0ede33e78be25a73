"""Gateways are killed. The people in the chats see every question answered, in order, and none answered twice.

Only two repetitions are allowed, and both show it: a part that may have arrived already has a mark, and a turn that was
killed says so before it is continued.
"""

import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from backstay import open_store
from backstay.model.session import SessionFilter
from backstay.store.commands import gateway_commands
from tests.crash.sql_audit import audit
from tests.crash.worker_processes import WorkerProcesses
from tests.databases import Place
from tests.effort import tries
from tests.gateways.fake_telegram import FakeTelegram, fake_telegram
from tests.gateways.gateway_program import STEPS

OWNER = "local"
MARK = "↻"
BROKEN_OFF = "⚠️"


@contextmanager
def gateway(place: Place, telegram: FakeTelegram, *death: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that runs the gateway, and perhaps dies at a step."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.gateways.gateway_program", str(place), telegram.url, *death],
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_gateway_that_is_killed_at_any_step_answers_once(place: Place) -> None:
    with fake_telegram() as telegram:
        # Each process first answers what its predecessor left, and dies at the next step of the next question.
        for number, step in enumerate(STEPS):
            with gateway(place, telegram, step, f"killed at {step}") as process:
                _wait_until_settled(place, telegram, STEPS[:number])
                telegram.write(f"killed at {step}", chat=_chat(step), sender=42)
                assert process.wait(120) == -signal.SIGKILL
        with gateway(place, telegram):
            _wait_until_settled(place, telegram, STEPS)
        shown = {step: [_shape(one.text) for one in telegram.seen if one.chat == _chat(step)] for step in STEPS}

    assert shown == {
        "receive": ["answer"],
        "store": ["answer"],
        "acknowledge": ["answer"],
        # The turn died with the process, and says so.
        "run": ["broken off", "answer"],
        # Nobody can know whether it had arrived: the mark is allowed here, and nowhere else.
        "send": ["marked answer"],
        "receipt": ["answer", "marked answer"],
    }
    _check(place, {f"killed at {step}" for step in STEPS})


def _wait_until_settled(place: Place, telegram: FakeTelegram, steps: tuple[str, ...]) -> None:
    """Wait until these questions are answered, and the store knows that their answers have arrived."""
    telegram.wait_for(lambda: all(_answers(telegram, _chat(step)) for step in steps), 120)
    pause, end = threading.Event(), time.monotonic() + 120
    with open_store(place) as store:
        while store.run(gateway_commands.due_deliveries("telegram/7", owner=OWNER)):
            assert time.monotonic() < end, "an answer that has arrived has no receipt"
            pause.wait(0.01)


def _chat(step: str) -> int:
    return 100 + STEPS.index(step)


def _shape(text: str) -> str:
    if BROKEN_OFF in text:
        return "broken off"
    return "marked answer" if text.startswith(MARK) else "answer"


# --- random kills ---------------------------------------------------------------------------------------------------

CHATS, QUESTIONS, KILLS = tries(20, 200, 200), tries(3, 10, 50), tries(4, 40, 200)


def test_people_who_talk_to_killed_gateways_are_answered_in_order(place: Place) -> None:
    chance = random.Random(7)
    goals = sorted(chance.sample(range(1, CHATS * QUESTIONS), KILLS))
    with fake_telegram(seed=7, chance=0.05) as telegram, ExitStack() as running:
        people = People(telegram)
        # Many messages wait when the first gateway comes. Two processes on one bot: one polls, the other one waits.
        people.ask_on()
        processes = [running.enter_context(gateway(place, telegram)) for _ in range(2)]
        for goal in goals:
            people.talk_until(goal)
            killed = processes.pop(chance.randrange(2))
            killed.kill()
            processes.append(running.enter_context(gateway(place, telegram)))
        people.talk_until(CHATS * QUESTIONS)

        for chat in range(1, CHATS + 1):
            assert people.answered_in(chat) == people.questions_of(chat), f"the answers of chat {chat} are out of order"
        once = Counter(one.text for one in telegram.seen if _shape(one.text) == "answer")
        assert {text: count for text, count in once.items() if count > 1} == {}
    _check(place, {question for chat in range(1, CHATS + 1) for question in people.questions_of(chat)})


class People:
    """People who each ask their next question when the last one was answered."""

    def __init__(self, telegram: FakeTelegram) -> None:
        self._telegram = telegram
        self._asked: Counter[int] = Counter()
        self._answered = 0

    def questions_of(self, chat: int) -> list[str]:
        """The questions of a chat, in order."""
        return [f"question {number} of {chat}" for number in range(1, QUESTIONS + 1)]

    def answered_in(self, chat: int) -> list[str]:
        """The questions whose answers people have seen, in order, each once."""
        return list(dict.fromkeys(_answers(self._telegram, chat)))

    def ask_on(self) -> None:
        """Everybody whose last question was answered asks the next one."""
        self._answered = 0
        for chat in range(1, CHATS + 1):
            answered = len(self.answered_in(chat))
            self._answered += answered
            if answered == self._asked[chat] < QUESTIONS:
                self._telegram.write(self.questions_of(chat)[answered], chat=chat, sender=chat)
                self._asked[chat] += 1

    def talk_until(self, count: int) -> None:
        """Until so many questions are answered."""
        while self._answered < count:
            seen = len(self._telegram.seen)
            self.ask_on()
            if self._answered < count:
                self._telegram.wait_for(lambda seen=seen: len(self._telegram.seen) > seen, 120)  # type: ignore[misc]  # bound now


def _answers(telegram: FakeTelegram, chat: int) -> list[str]:
    """The questions that the people in a chat have seen an answer to."""
    return [
        found[1]
        for text in telegram.texts(chat)
        if (found := re.search("you said: (.*)", text)) and found[1] and BROKEN_OFF not in text
    ]


def _check(place: Place, asked: set[str]) -> None:
    """Each message is in the sessions once, and the store is sound."""
    with open_store(place) as store:
        sessions = store.list(owner=OWNER, filter=SessionFilter(), limit=200).sessions
        inputs = Counter(
            message.text
            for session in sessions
            for message in store.messages(session.id, owner=OWNER).messages
            if message.role == "user"
        )
    assert inputs == Counter(asked)
    with WorkerProcesses(1) as auditor:
        assert auditor.all(audit, place) == [[]]
