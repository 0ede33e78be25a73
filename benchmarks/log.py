"""The write-ahead log's maximum while others read all the time: four short readers, and one that exports."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from backstay import Store, open_store
from backstay.model import message
from backstay.store.sqlite.checkpointer import LIMIT_BYTES
from benchmarks.figure import Figure
from benchmarks.ground import Ground, session_of
from benchmarks.scratch import copy, on_disk
from benchmarks.speech import OWNER

READERS = 4
_MESSAGES = 10_000
_WRITES, _BYTES = 200, 900_000
_MB = 1_000_000


def figures() -> Iterator[Figure]:
    """How large the log gets in megabytes while much is written."""
    with on_disk() as room:
        ground = session_of(room, _MESSAGES)
        yield _measured(ground, room, "four readers of the list and of messages", READERS, _look)
        yield _measured(ground, room, "one reader that exports 10,000 messages", 1, _export)
        yield _measured(ground, room, "four readers that export 10,000 messages", READERS, _export)


def _look(store: Store, ground: Ground) -> None:
    store.list(owner=OWNER, limit=50)
    store.messages(ground.session, owner=OWNER)


def _export(store: Store, ground: Ground) -> None:
    store.export(ground.session, owner=OWNER)


def _measured(ground: Ground, room: Path, name: str, readers: int, read: Callable[[Store, Ground], None]) -> Figure:
    path = copy(ground.path, room / "log.db")
    log = path.with_name(f"{path.name}-wal")
    largest = 0
    with open_store(path) as store:
        session = store.create(owner=OWNER).id
        with _reading(readers, lambda: read(store, ground)):
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
