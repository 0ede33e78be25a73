"""A test that hangs is ended, wherever it waits."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from tests.plugins.time_limit import OutOfTime, limit


async def wait_for_ever() -> None:
    await asyncio.Event().wait()


def swallow() -> None:
    """Wait, and catch what ends the wait: the next signal ends the second wait."""
    try:
        threading.Event().wait()
    except BaseException:  # noqa: BLE001  # as a callback of an event loop does
        threading.Event().wait()


WAITS: dict[str, Callable[[], object]] = {
    "a lock": threading.Event().wait,
    "a coroutine": lambda: asyncio.run(wait_for_ever()),
    "a caught end": swallow,
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=list(WAITS))
def test_a_wait_without_an_end_is_ended(wait: Callable[[], object]) -> None:
    with pytest.raises(OutOfTime), limit(0.1):
        wait()


def test_a_wait_for_a_child_is_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        with pytest.raises(OutOfTime), limit(0.1):
            child.wait()
        child.kill()
