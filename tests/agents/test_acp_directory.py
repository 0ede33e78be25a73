"""The directory of a program is closed, also when nobody waits for it any more."""

import asyncio
import os
import threading
from contextlib import suppress
from pathlib import Path

import msgspec

from backstay.agents.acp.directory import open_directory
from backstay.agents.roots import AgentRoots


class HeldRoots(AgentRoots, frozen=True):
    """Roots whose check waits until it is released, as a slow file system would."""

    reached: threading.Event = msgspec.field(default_factory=threading.Event)
    released: threading.Event = msgspec.field(default_factory=threading.Event)

    def allow(self, real: str) -> bool:
        self.reached.set()
        assert self.released.wait(60)
        return super().allow(real)


async def _open(path: Path, roots: HeldRoots) -> None:
    try:
        async with open_directory(str(path), roots):
            raise AssertionError("it was opened before it was released")
    finally:
        roots.released.set()


def is_open(directory: Path) -> bool:
    """Whether this process has the directory open."""
    for fd in map(int, os.listdir("/dev/fd")):  # noqa: PTH208  # their numbers, not their paths
        with suppress(OSError):  # The list itself was read through one of them.
            if os.path.samestat(os.fstat(fd), directory.stat()):
                return True
    return False


def test_a_directory_is_closed_when_its_caller_is_cancelled(tmp_path: Path) -> None:
    roots = HeldRoots((str(tmp_path),))

    async def main() -> None:
        caller = asyncio.create_task(_open(tmp_path, roots))
        await asyncio.to_thread(roots.reached.wait)
        caller.cancel()
        await asyncio.wait({caller})
        assert caller.cancelled()

    asyncio.run(main())
    assert not is_open(tmp_path)


def test_a_directory_is_closed_when_the_event_loop_ends_meanwhile(tmp_path: Path) -> None:
    roots, callers = HeldRoots((str(tmp_path),)), []

    async def main() -> None:
        callers.append(asyncio.create_task(_open(tmp_path, roots)))
        await asyncio.to_thread(roots.reached.wait)

    asyncio.run(main())
    assert callers[0].cancelled()
    assert not is_open(tmp_path)
