"""The interval between two looks: it passes by itself, a hint ends it, and no number of hints makes looking a rush."""

import asyncio
from collections.abc import Coroutine

from backstay.runtime.interval import REST, Interval

HOUR = 3_600.0
PATIENCE = 120.0


def play(story: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(story, PATIENCE))


def test_it_passes_without_any_hint() -> None:
    play(Interval(0.001).elapse())


def test_a_hint_that_came_before_ends_the_next_wait() -> None:
    async def story() -> None:
        interval = Interval(HOUR)
        for _ in range(3):
            interval.hint()
            await interval.elapse()

    play(story())


def test_a_hint_is_good_for_one_wait() -> None:
    async def story() -> None:
        interval = Interval(HOUR)
        interval.hint()
        interval.hint()
        await interval.elapse()

        waiting = asyncio.create_task(interval.elapse())
        done, _ = await asyncio.wait({waiting}, timeout=2 * REST)
        assert not done
        interval.hint()
        await waiting

    play(story())


def test_between_two_hints_that_are_followed_there_is_a_rest() -> None:
    async def story() -> None:
        interval, now = Interval(HOUR), asyncio.get_running_loop().time
        interval.hint()
        await interval.elapse()
        first = now()
        interval.hint()
        await interval.elapse()
        assert now() - first >= REST * 0.9

    play(story())


def test_nobody_waits_for_what_has_ended() -> None:
    async def story() -> None:
        interval = Interval(HOUR)
        waiting = asyncio.create_task(interval.elapse())
        await asyncio.sleep(0)
        interval.end()
        await waiting
        await interval.elapse()

    play(story())
