"""The directory of a program is the one that was checked, and is closed even if its caller no longer waits."""

import asyncio
import os
import threading
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from backstay.agents.programs.directory import open_directory
from backstay.agents.roots import AgentRoots
from backstay.errors import AgentFailed


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


class SwappedAfterTheCheck(AgentRoots, frozen=True):
    """Roots whose first check is followed at once by another program, which puts a link in the directory's place."""

    link: str = ""
    target: str = ""

    def allow(self, real: str) -> bool:
        allowed = super().allow(real)
        if not os.path.islink(self.link):  # noqa: PTH114  # a string
            Path(self.link).rmdir()
            Path(self.link).symlink_to(self.target)
        return allowed


async def test_a_link_that_replaces_a_directory_after_its_check_is_refused(tmp_path: Path) -> None:
    inside, outside = tmp_path / "root" / "work", tmp_path / "secret"
    inside.mkdir(parents=True)
    outside.mkdir()
    roots = SwappedAfterTheCheck((str(tmp_path / "root"),), link=str(inside), target=str(outside))

    with pytest.raises(AgentFailed, match="outside the directories in which this agent may work"):
        async with open_directory(str(inside), roots):
            raise AssertionError("it was opened")

    assert inside.is_symlink()
    assert not is_open(outside)


async def test_a_link_that_replaces_a_directory_after_it_was_opened_has_no_effect(tmp_path: Path) -> None:
    inside, outside = tmp_path / "root" / "work", tmp_path / "secret"
    inside.mkdir(parents=True)
    outside.mkdir()

    async with open_directory(str(inside), AgentRoots((str(tmp_path / "root"),))) as directory:
        opened = inside.rename(tmp_path / "root" / "moved")
        inside.symlink_to(outside)
        assert os.path.samestat(os.fstat(directory.fd), opened.stat())
