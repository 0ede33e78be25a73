"""The maximum size of the write-ahead log during continuous reads: four short readers, and one that exports."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from backstay import Store, open_store
from backstay.model import message
from backstay.store.sqlite.checkpointer import LIMIT_BYTES
from benchmarks.instruments.figure import Figure
from benchmarks.instruments.prepared_databases import PreparedDatabase, session_of
from benchmarks.instruments.sample_turns import OWNER
from benchmarks.instruments.scratch_folders import copy, on_disk

READERS = 4
_MESSAGES = 10_000
_WRITES, _BYTES = 200, 900_000
_MB = 1_000_000


def figures() -> Iterator[Figure]:
    """The size of the log in megabytes during many writes."""
    with on_disk() as folder:
        prepared = session_of(folder, _MESSAGES)
        yield _measured(prepared, folder, "four readers of the list and of messages", READERS, _look)
        yield _measured(prepared, folder, "one reader that exports 10,000 messages", 1, _export)
        yield _measured(prepared, folder, "four readers that export 10,000 messages", READERS, _export)


def _look(store: Store, prepared: PreparedDatabase) -> None:
    store.list(owner=OWNER, limit=50)
    store.messages(prepared.session, owner=OWNER)


def _export(store: Store, prepared: PreparedDatabase) -> None:
    store.export(prepared.session, owner=OWNER)


def _measured(
    prepared: PreparedDatabase, folder: Path, name: str, readers: int, read: Callable[[Store, PreparedDatabase], None]
) -> Figure:
    path = copy(prepared.path, folder / "log.db")
    log = path.with_name(f"{path.name}-wal")
    largest = 0
    with open_store(path) as store:
        session = store.create(owner=OWNER).id
        with _reading(readers, lambda: read(store, prepared)):
            for _ in range(_WRITES):
                store.record(session, [message.user("x" * _BYTES)], owner=OWNER)
                largest = max(largest, log.stat().st_size)
    return Figure(
        name=f"the log: {name}",
        value=largest / _MB,
        unit="MB",
        limit=round(LIMIT_BYTES / _MB),
        detail=f"while {_WRITES * _BYTES / _MB:.0f} MB are written",
    )


@contextmanager
def _reading(readers: int, read: Callable[[], None]) -> Iterator[None]:
    over = threading.Event()

    def again_and_again() -> None:
        while not over.is_set():
            read()

    threads = [threading.Thread(target=again_and_again) for _ in range(readers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
