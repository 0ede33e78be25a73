"""The adapters that need no environment of their own implement the timed operations."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from benchmarks.peers.adapter import Adapter, Unsupported
from benchmarks.peers.adapters.backstay_store import BackstayStore
from benchmarks.peers.adapters.floor import Floor
from benchmarks.peers.adapters.json_file import JsonFile
from benchmarks.peers.workload.content import tag_of, text, turn, turns

Check = Callable[[Adapter], Coroutine[None, None, None]]
EVERY = pytest.mark.parametrize("kind", [Floor, BackstayStore, JsonFile])


def _on(kind: type[Adapter], directory: Path, check: Check) -> None:
    async def run() -> None:
        adapter = kind("default")
        await adapter.open(directory)
        try:
            await adapter.seed("old", turns("old", 3))
            await check(adapter)
        finally:
            await adapter.close()

    asyncio.run(run())


def _tags(texts: list[str]) -> list[str]:
    return [tag_of(one) for one in texts]


OLD = [f"old.{number}/{role}" for number in range(3) for role in ("user", "assistant")]


@EVERY
def test_a_recorded_turn_is_read_at_the_end(kind: type[Adapter], tmp_path: Path) -> None:
    async def check(adapter: Adapter) -> None:
        await adapter.record("old", turn("new"))
        assert _tags(await adapter.load("old")) == [*OLD, "new/user", "new/assistant"]
        assert _tags(await adapter.last("old", 3)) == ["old.2/assistant", "new/user", "new/assistant"]

    _on(kind, tmp_path, check)


@EVERY
def test_undo_takes_the_last_turn_back(kind: type[Adapter], tmp_path: Path) -> None:
    async def check(adapter: Adapter) -> None:
        await adapter.undo("old")
        assert _tags(await adapter.load("old")) == OLD[:4]

    _on(kind, tmp_path, check)


@EVERY
def test_a_new_session_has_its_first_turn_and_is_listed(kind: type[Adapter], tmp_path: Path) -> None:
    async def check(adapter: Adapter) -> None:
        await adapter.create_and_record("new", turn("first"))
        assert _tags(await adapter.load("new")) == ["first/user", "first/assistant"]
        assert await adapter.resolve("new") is not None
        assert await adapter.newest(50) == 2

    _on(kind, tmp_path, check)


@pytest.mark.parametrize("kind", [Floor, JsonFile])
def test_a_fork_has_the_whole_history(kind: type[Adapter], tmp_path: Path) -> None:
    async def check(adapter: Adapter) -> None:
        await adapter.fork("old", "branch")
        await adapter.record("old", turn("new"))
        assert _tags(await adapter.load("branch")) == OLD

    _on(kind, tmp_path, check)


def test_an_operation_that_a_peer_lacks_has_a_reason(tmp_path: Path) -> None:
    async def check(adapter: Adapter) -> None:
        with pytest.raises(Unsupported, match="rewrite the whole file"):
            await adapter.delta("old", "text")

    _on(JsonFile, tmp_path, check)


def test_a_text_has_exactly_the_asked_size() -> None:
    assert {len(text("tag", size)) for size in (20, 500, 1_500)} == {20, 500, 1_500}
