"""A crowd: many clients of one store in one process, each with a session of its own."""

import threading
import time
from collections.abc import Sequence

from backstay import Store
from backstay.model.ids import SessionId
from benchmarks.speech import OWNER, recorded


def sessions(store: Store, count: int) -> list[SessionId]:
    """New sessions for a crowd."""
    return [store.create(owner=OWNER).id for _ in range(count)]


def talk(store: Store, crowd: Sequence[SessionId], turns: int) -> None:
    """Every client records so many turns, all at once."""

    def client(session: SessionId) -> None:
        for _ in range(turns):
            recorded(store, session)

    threads = [threading.Thread(target=client, args=(session,)) for session in crowd]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def talk_until(store: Store, crowd: Sequence[SessionId], seconds: float) -> list[list[float]]:
    """Every client records turns until the time is up; for each client, how long each of its turns took."""
    waits: list[list[float]] = [[] for _ in crowd]
    end = time.perf_counter() + seconds

    def client(index: int) -> None:
        now = time.perf_counter()
        while now < end:
            recorded(store, crowd[index])
            before, now = now, time.perf_counter()
            waits[index].append(now - before)

    threads = [threading.Thread(target=client, args=(index,)) for index in range(len(crowd))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return waits
