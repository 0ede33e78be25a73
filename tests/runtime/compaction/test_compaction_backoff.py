"""Compaction backs off: it waits after a failure, and leaves a session that it cannot shorten."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import backstay
from backstay import Text
from backstay.agents.port import AgentTurn
from backstay.model.content import Body
from backstay.model.ids import SessionId
from backstay.model.turn import Completed, Failed
from backstay.runtime.compaction.compaction_backoff import CompactionBackoff
from backstay.testing import ManualClock
from tests.runtime.compaction.word_tokens import compactions, converse, counting, gist, policy, talkative

# These tests are about agents and their output in the runtime: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")

SOME, OTHER = SessionId("some"), SessionId("other")


async def broken(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text("so f")
    raise OSError("no network")


async def test_after_a_failure_a_session_is_left_alone_twice_as_long_each_time(path: Path) -> None:
    calls: list[AgentTurn] = []

    clock, compaction = ManualClock(), policy(summariser=counting(broken, calls), pause=30)
    async with backstay.open(path, agent=talkative, compaction=compaction, clock=clock) as app:
        session = await app.session()
        await converse(session, 5)
        assert len(calls) == 1
        for pause, attempts in ((29.9, 1), (0.1, 2), (59.9, 2), (0.1, 3), (119.9, 3), (0.1, 4)):
            clock.advance(pause)
            await converse(session, 1)
            assert len(calls) == attempts
        assert [type(outcome) for outcome in await compactions(session)] == [Failed] * 4


async def test_a_failing_session_delays_no_other_and_success_ends_its_backoff(path: Path) -> None:
    summarise = [broken]

    async def fickle(turn: AgentTurn) -> AsyncIterator[Body]:
        async for body in summarise[0](turn):
            yield body

    clock = ManualClock()
    async with backstay.open(path, agent=talkative, compaction=policy(summariser=fickle), clock=clock) as app:
        first, second = await app.session(), await app.session()
        await converse(first, 3)
        summarise[0] = gist
        await converse(second, 3)
        assert isinstance((await compactions(second))[0], Completed)
        await converse(first, 1)
        assert len(await compactions(first)) == 1
        clock.advance(30)
        await converse(first, 6)
        assert [type(outcome) for outcome in await compactions(first)][:2] == [Failed, Completed]
        assert len(await compactions(first)) > 2, "and from then on whenever it is too long"


async def test_a_session_that_stays_too_long_is_logged_and_retried_after_growth(path: Path) -> None:
    async def one_long_answer(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(" ".join(["word"] * (100 if "long" in turn.input.text else 1)))

    async with backstay.open(path, agent=one_long_answer, compaction=policy()) as app:
        session = await app.session()
        await converse(session, 2)
        await (await session.send("something long")).outcome()
        await converse(session, 1)
        (outcome,) = await compactions(session)
        assert outcome.reason.endswith("which is still too long")
        # The summary and the tail take 105 tokens, and every turn takes 3 more: at 132 it has grown by a quarter.
        await converse(session, 7)
        assert len(await compactions(session)) == 1
        await converse(session, 2)
        assert len(await compactions(session)) == 2


# --- remembered failures --------------------------------------------------------------------------------------------


def test_a_pause_doubles_and_ends_at_an_hour() -> None:
    now = [0.0]
    backoff = CompactionBackoff(30.0, lambda: now[0])

    pauses = []
    for _ in range(3000):
        backoff.failed(SOME)
        began = now[0]
        now[0] += 3600.0
        assert backoff.allows(SOME, 1)
        pauses.append(_pause(backoff, now, began))

    assert pauses[:8] == [30, 60, 120, 240, 480, 960, 1920, 3600]
    assert set(pauses[8:]) == {3600}


def _pause(backoff: CompactionBackoff, now: list[float], began: float) -> int:
    """How many seconds after it began the pause was over."""
    low, high = 0, 3600
    here = now[0]
    while low < high:
        now[0] = began + (low + high) // 2
        low, high = (low, (low + high) // 2) if backoff.allows(SOME, 1) else ((low + high) // 2 + 1, high)
    now[0] = here
    return low


def test_without_a_pause_every_failure_may_be_followed_by_another_attempt() -> None:
    backoff = CompactionBackoff(0.0, lambda: 0.0)
    for _ in range(3000):
        backoff.failed(SOME)
        assert backoff.allows(SOME, 1)


def test_a_window_that_stayed_long_is_tried_again_a_quarter_longer_or_after_success() -> None:
    backoff = CompactionBackoff(30.0, lambda: 0.0)
    backoff.still_long(SOME, 100)

    assert not backoff.allows(SOME, 124)
    assert backoff.allows(SOME, 125)
    assert backoff.allows(OTHER, 1)
    backoff.succeeded(SOME)
    assert backoff.allows(SOME, 1)


def test_only_the_latest_sessions_that_gave_trouble_are_remembered() -> None:
    backoff = CompactionBackoff(30.0, lambda: 0.0)
    for number in range(10_001):
        backoff.failed(SessionId(f"{number}"))

    assert backoff.allows(SessionId("0"), 1)
    assert not backoff.allows(SessionId("1"), 1)
