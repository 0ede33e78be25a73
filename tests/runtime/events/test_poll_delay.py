"""The delay between two polls ends by itself, or early by a hint; many hints do not make polling too frequent."""

import asyncio
from collections.abc import Coroutine

import pytest

from backstay.runtime.events.poll_delay import LONGEST_DELAY, PollDelay

HOUR = 3_600.0
PATIENCE = 120.0


def play(story: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(story, PATIENCE))


async def test_a_poll_delay_ends_without_a_wake_up() -> None:
    await PollDelay(0.001).wait()


async def test_a_hint_that_came_before_ends_the_next_wait() -> None:
    interval = PollDelay(HOUR)
    for _ in range(3):
        interval.wake()
        await interval.wait()


async def test_a_hint_is_good_for_one_wait() -> None:
    interval = PollDelay(HOUR)
    interval.wake()
    interval.wake()
    await interval.wait()

    waiting = asyncio.create_task(interval.wait())
    done, _ = await asyncio.wait({waiting}, timeout=2 * LONGEST_DELAY)
    assert not done
    interval.wake()
    await waiting


@pytest.mark.parametrize(
    ("shortest", "took", "rest"),
    [(0.0, 0.0, 0.0), (0.02, 0.0, 0.02), (0.0, 0.005, 0.02), (0.0, HOUR, LONGEST_DELAY)],
    ids=["none", "shortest", "in proportion to the poll", "bounded"],
)
async def test_between_two_hints_that_are_followed_there_is_a_rest(shortest: float, took: float, rest: float) -> None:
    interval, now = PollDelay(HOUR, shortest), asyncio.get_running_loop().time
    interval.wake()
    await interval.wait()
    first = now()
    interval.wake()
    await interval.wait(took)
    assert now() - first >= rest * 0.9


async def test_a_hint_after_a_quiet_time_is_followed_at_once() -> None:
    interval = PollDelay(HOUR, least=HOUR / 2)
    interval.wake()
    await asyncio.wait_for(interval.wait(), PATIENCE)


async def test_an_ended_poll_delay_does_not_wait() -> None:
    interval = PollDelay(HOUR)
    waiting = asyncio.create_task(interval.wait())
    await asyncio.sleep(0)
    interval.end()
    await waiting
    await interval.wait()
