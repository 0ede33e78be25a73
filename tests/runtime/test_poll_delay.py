"""The interval between two looks: it passes by itself, a hint ends it, and no number of hints makes looking a rush."""

import asyncio
from collections.abc import Coroutine

from backstay.runtime.events.poll_delay import MIN_DELAY, PollDelay

HOUR = 3_600.0
PATIENCE = 120.0


def play(story: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(story, PATIENCE))


async def test_it_passes_without_any_hint() -> None:
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
    done, _ = await asyncio.wait({waiting}, timeout=2 * MIN_DELAY)
    assert not done
    interval.wake()
    await waiting


async def test_between_two_hints_that_are_followed_there_is_a_rest() -> None:
    interval, now = PollDelay(HOUR), asyncio.get_running_loop().time
    interval.wake()
    await interval.wait()
    first = now()
    interval.wake()
    await interval.wait()
    assert now() - first >= MIN_DELAY * 0.9


async def test_nobody_waits_for_what_has_ended() -> None:
    interval = PollDelay(HOUR)
    waiting = asyncio.create_task(interval.wait())
    await asyncio.sleep(0)
    interval.end()
    await waiting
    await interval.wait()
