"""A store or an app that is dropped while open warns, and names the remedy."""

import asyncio
import gc
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import backstay

pytestmark = pytest.mark.engines("sqlite")


def warned(work: Callable[[], object], expected: Callable[[], str] = str) -> list[str]:
    """The resource warnings of some work and of its garbage.

    A thread may still hold the dropped object: the garbage is collected until the expected warning is there.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
        for _ in range(100_000):
            gc.collect()
            said = [str(one.message) for one in caught if one.category is ResourceWarning]
            if any(expected() in one for one in said) or not expected():
                return said
    raise AssertionError(f"nothing said {expected()!r}")


def test_a_store_that_is_dropped_while_open_warns(path: Path) -> None:
    names: list[str] = []
    said = warned(lambda: names.append(backstay.open_store(path).worker), lambda: f"store {names[0]} was dropped")
    # Garbage of other tests may warn as well.
    assert f"store {names[0]} was dropped while open; use `with open_store(…) as store:` or call close()" in said


def test_a_store_that_was_closed_does_not_warn(path: Path) -> None:
    store = backstay.open_store(path)
    name = store.worker
    store.close()
    del store
    assert not any(name in one for one in warned(gc.collect))


def test_an_app_that_is_dropped_while_open_warns(path: Path) -> None:
    async def forget() -> None:
        await backstay.open(path).__aenter__()

    expected = "an app was dropped while open; use `async with backstay.open(…) as app:`"
    assert warned(lambda: asyncio.run(forget()), lambda: expected)


def test_an_app_that_was_closed_does_not_warn(path: Path) -> None:
    async def close() -> None:
        async with backstay.open(path):
            pass

    assert not any("an app" in one for one in warned(lambda: asyncio.run(close())))


def test_a_blocking_app_that_is_dropped_while_open_warns(path: Path) -> None:
    expected = "an app was dropped while open; use `with backstay.open_blocking(…) as app:`"
    assert warned(lambda: backstay.open_blocking(path).__enter__(), lambda: expected)
