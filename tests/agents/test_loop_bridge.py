"""A thread waits for a coroutine on an event loop, and abandons it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backstay.concurrency.loop_bridge import LoopBridge

PATIENCE = 120.0


class Interrupted(asyncio.SelectorEventLoop):
    """A loop whose caller gets a Ctrl-C after it has submitted a coroutine, and before it has the future."""

    strikes = 0

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]  # of any arguments, and all are passed on
        handle = super().call_soon_threadsafe(callback, *args, context=context)
        if self.strikes:
            self.strikes -= 1
            raise KeyboardInterrupt
        return handle


@pytest.fixture
def loop() -> Iterator[Interrupted]:
    loop = Interrupted()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(PATIENCE)
    loop.close()


def test_ctrl_c_during_the_hand_over_cancels_the_coroutine(loop: Interrupted) -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    async def everything_ends() -> bool:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        return not others or not (await asyncio.wait(others, timeout=PATIENCE))[1]

    loop.strikes = 1
    with pytest.raises(KeyboardInterrupt):
        LoopBridge(loop).wait(work())
    assert LoopBridge(loop).wait(everything_ends())


def test_a_coroutine_that_is_abandoned_before_it_starts_never_runs(loop: Interrupted) -> None:
    busy, ran = threading.Event(), threading.Event()

    async def work() -> None:
        ran.set()

    loop.call_soon_threadsafe(busy.wait, PATIENCE)  # The loop cannot begin anything meanwhile.
    loop.strikes = 1
    with pytest.raises(KeyboardInterrupt):
        LoopBridge(loop).wait(work())
    busy.set()
    LoopBridge(loop).wait(asyncio.sleep(0))
    assert not ran.is_set()
