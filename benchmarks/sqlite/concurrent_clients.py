"""Concurrent clients of one store in one process, each with its own session."""

import threading
import time
from collections.abc import Sequence

from backstay import Store
from backstay.model.ids import SessionId
from benchmarks.instruments.sample_turns import OWNER, recorded


def sessions(store: Store, count: int) -> list[SessionId]:
    """Create a session for each client."""
    return [store.create(owner=OWNER).id for _ in range(count)]


def record_turns(store: Store, clients: Sequence[SessionId], turns: int) -> None:
    """All clients record this number of turns concurrently."""

    def client(session: SessionId) -> None:
        for _ in range(turns):
            recorded(store, session)

    threads = [threading.Thread(target=client, args=(session,)) for session in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def record_until(store: Store, clients: Sequence[SessionId], seconds: float) -> list[list[float]]:
    """All clients record turns until the time is up. Returns the durations of the turns of each client."""
    waits: list[list[float]] = [[] for _ in clients]
    end = time.perf_counter() + seconds

    def client(index: int) -> None:
        now = time.perf_counter()
        while now < end:
            recorded(store, clients[index])
            before, now = now, time.perf_counter()
            waits[index].append(now - before)

    threads = [threading.Thread(target=client, args=(index,)) for index in range(len(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return waits
