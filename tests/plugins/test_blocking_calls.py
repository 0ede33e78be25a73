"""The detector of blocking calls: it finds those of our coroutines, and only those."""

import asyncio
import textwrap
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from backstay import open_store
from tests.plugins.blocking_calls import SOURCES, found

CALLS = {
    "a file": "open(path).close()",
    "a listing": "os.listdir(path.parent)",
    "a statement of a store": "store.list(owner='me')",
}


def coroutine(call: str, file: str) -> Callable[..., Coroutine[object, object, None]]:
    """A coroutine function that makes this call and seems to stand in this file."""
    text = f"import os\nasync def block(path, store):\n{textwrap.indent(call, '    ')}\n"
    names: dict[str, Callable[..., Coroutine[object, object, None]]] = {}
    exec(compile(text, file, "exec"), names)
    return names["block"]


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_a_blocking_call_of_our_coroutine_is_found(call: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with open_store(tmp_path / "chat.db") as store:
        asyncio.run(coroutine(call, f"{SOURCES}/runtime/planted.py")(tmp_path / "file", store))
    assert found
    found.clear()


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_a_blocking_call_of_a_test_is_not_reported(call: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with open_store(tmp_path / "chat.db") as store:
        asyncio.run(coroutine(call, __file__)(tmp_path / "file", store))
    assert not found


async def test_a_call_on_a_thread_does_not_block_the_loop(tmp_path: Path) -> None:
    with open_store(tmp_path / "chat.db") as store:
        await asyncio.to_thread(store.list, owner="me")
    assert not found
