"""Opening a store with too few free file descriptors: the process waits, and raises an error if none comes."""

import os
import resource
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from backstay.errors import StoreUnavailable
from tests.open_sqlite import open_sqlite
from tests.runtime_processes.child_process import Child

ME = "me"


def limit_with(free: int) -> int:
    """The limit under which this many more files can be opened."""
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(free + 1)]
    for each in opened:
        os.close(each)
    return max(opened)


def open_with_few_files(pipe: "Connection[Any, Any]", path: Path, free: int, tries: int) -> None:
    """Open a store while only so many files can be opened; after this number of attempts at a file all can."""
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    tried = 0

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal tried
        # The store looks for scarcity by opening the null device: what it finds must stay so until it has acted.
        if event in ("open", "os.listdir", "os.scandir") and arguments[0] != os.devnull and tries:
            tried += 1
            if tried == tries:
                resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))

    open_sqlite(path).close()
    sys.addaudithook(count)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit_with(free), most))
    try:
        with open_sqlite(path, wait_seconds=60 if tries else 0) as store:
            # It may have needed no more; a read opens further files.
            resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))
            pipe.send(("opened", len(store.list(owner=ME).sessions)))
    except StoreUnavailable as error:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))
        pipe.send(("refused", str(error)))
        with open_sqlite(path) as store:
            pipe.send(("opened", len(store.list(owner=ME).sessions)))


@pytest.mark.parametrize(("free", "tries"), [(0, 5), (4, 20), (7, 20)])
def test_a_store_is_opened_as_soon_as_there_are_file_descriptors(tmp_path: Path, free: int, tries: int) -> None:
    with Child(open_with_few_files, tmp_path / "store.db", free, tries) as child:
        assert child.receive() == ("opened", 0)


@pytest.mark.parametrize("free", [0, 5])
def test_a_store_without_a_file_descriptor_raises_and_can_be_opened_later(tmp_path: Path, free: int) -> None:
    with Child(open_with_few_files, tmp_path / "store.db", free, 0) as child:
        assert "too many files are open" in child.receive("refused")[0]
        assert child.receive("opened") == (0,)
