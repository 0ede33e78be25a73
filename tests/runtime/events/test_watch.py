"""A subscription wakes its reader if the event log ends at another cursor than the reader's, and only then."""

import asyncio

import pytest

from backstay.model.event import START, UNSEEN, Cursor
from backstay.model.ids import SessionId
from backstay.runtime.events.notifier import Subscription


def at(number: int, fence: int = 1) -> Cursor:
    return Cursor(fence=fence, number=number)


@pytest.fixture
def subscription() -> Subscription:
    return Subscription(SessionId("ses_1"), "local")


@pytest.mark.parametrize(
    ("head", "news"),
    [
        (at(5), False),
        (at(6), True),
        (at(4), True),
        (at(5, fence=2), True),
        (START, True),
    ],
    ids=["the same event", "a longer log", "a shorter log", "another event under its number", "no log"],
)
def test_a_reader_must_read_when_the_log_ends_with_another_event(
    subscription: Subscription, head: Cursor, news: bool
) -> None:
    subscription.advance(head, 1)

    assert subscription.must_read(at(5)) is news


def test_a_reader_without_a_fence_has_nothing_to_read_at_its_number(subscription: Subscription) -> None:
    subscription.advance(at(5), 1)

    assert not subscription.must_read(at(5, fence=UNSEEN))


def test_a_head_from_before_the_last_read_is_not_a_change(subscription: Subscription) -> None:
    subscription.advance(at(4), 1)
    assert subscription.must_read(START)

    assert not subscription.must_read(at(5))


async def test_a_log_that_falls_back_to_the_last_known_head_is_a_change(subscription: Subscription) -> None:
    subscription.advance(at(4), 1)
    assert subscription.must_read(START)
    # The reader finds an event that was not published.
    waiting = asyncio.create_task(subscription.wait_past(at(5)))
    await asyncio.sleep(0)
    subscription.advance(at(4), 2)
    await waiting


def test_a_head_published_during_a_read_is_a_change_after_it(subscription: Subscription) -> None:
    subscription.advance(at(5), 1)
    assert subscription.must_read(START)
    subscription.advance(at(4), 2)

    assert subscription.must_read(at(5))


def test_publishing_the_same_head_again_wakes_no_reader() -> None:
    changed = asyncio.Event()
    subscription = Subscription(SessionId("ses_1"), "local", changed=changed)
    subscription.advance(at(5), 1)
    assert subscription.must_read(START)
    assert not subscription.must_read(at(5))
    changed.clear()

    subscription.advance(at(5), 2)

    assert not changed.is_set()
    assert not subscription.must_read(at(5))
