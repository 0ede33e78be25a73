"""The store alone: the verbs that the runtime calls for one turn, called by whoever wants them, in the same order."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

from backstay import Store, Text, open_store
from backstay.model.ids import SessionId
from backstay.model.turn import Completed
from backstay.store.sqlstore import SqlStore
from benchmarks.speech import OWNER, QUESTION

P = ParamSpec("P")
T = TypeVar("T")

VERBS = "submit, messages, a checkpoint per body, finish, turn"


class Way(Protocol):
    """How a caller has the store do something."""

    store: SqlStore

    def write(self, verb: Callable[Concatenate[Store, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    def read(self, verb: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...


class OwnThread:
    """The quickest way: everything on the caller's thread, as the store does it for whoever is alone."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store

    def write(self, verb: Callable[Concatenate[Store, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return cast(T, getattr(self.store, verb.__name__)(*args, **kwargs))  # the store's own verb of this name

    def read(self, verb: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return verb(*args, **kwargs)


class OtherThreads:
    """The way a loop must go, because it may not block: writes on the writer's thread, reads on a reader's."""

    def __init__(self, store: SqlStore, threads: ThreadPoolExecutor) -> None:
        self.store, self._threads = store, threads

    def write(self, verb: Callable[Concatenate[Store, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        done = threading.Lock()
        done.acquire()
        pending = self.store.begin(done.release, verb, *args, **kwargs)
        with done:
            return pending.result()

    def read(self, verb: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._threads.submit(verb, *args, **kwargs).result()


@contextmanager
def own_thread(path: Path) -> Iterator[OwnThread]:
    """A store whose caller does everything itself."""
    with open_store(path) as store:
        yield OwnThread(_sql(store))


@contextmanager
def other_threads(path: Path) -> Iterator[OtherThreads]:
    """A store whose caller hands everything to other threads and waits."""
    with open_store(path) as store, ThreadPoolExecutor(1) as threads:
        yield OtherThreads(_sql(store), threads)


def _sql(store: Store) -> SqlStore:
    if not isinstance(store, SqlStore):
        raise TypeError(f"{store!r} cannot begin a write")
    return store


def converse(way: Way, turns: int, deltas: Sequence[str]) -> None:
    """So many turns in a new session, one after the other."""
    session = way.write(Store.create, owner=OWNER).id
    for _ in range(turns):
        walk(way, session, deltas)


def walk(way: Way, session: SessionId, deltas: Sequence[str]) -> None:
    """One turn: accepted, its history read, each delta checkpointed, ended, and its outcome read."""
    turn = way.write(Store.submit, session, QUESTION, owner=OWNER, start=True).opened
    if turn is None:
        raise RuntimeError(f"{session} is busy in a benchmark that is its only user")
    way.read(way.store.messages, session, owner=OWNER)
    for delta in deltas:
        turn = way.write(Store.checkpoint, turn, [Text(delta)]).open
    way.write(Store.finish, turn, Completed(), agents=("default",))
    way.read(way.store.turn, turn.id, owner=OWNER)
