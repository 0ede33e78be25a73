"""The store without the runtime: the verbs that the runtime calls for one turn, in the same order."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from backstay import Store, Text, open_store
from backstay.model.ids import SessionId
from backstay.model.turn import Completed
from backstay.store import commands
from backstay.store.commands import Read, Write
from benchmarks.instruments.sample_turns import OWNER, QUESTION

T = TypeVar("T")

VERBS = "submit, messages, a checkpoint per body, finish, turn"


class CommandRunner(Protocol):
    """How a caller runs a command of the store."""

    def write(self, command: Write[T]) -> T: ...

    def read(self, command: Read[T]) -> T: ...


class OwnThread:
    """The fastest runner: everything on the caller's thread, as the store does it for a single caller."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def write(self, command: Write[T]) -> T:
        return self.store.run(command)

    def read(self, command: Read[T]) -> T:
        return self.store.run(command)


class OtherThreads:
    """The way of an event loop, which must not block: writes on the writer's thread, reads on a reader's."""

    def __init__(self, store: Store, threads: ThreadPoolExecutor) -> None:
        self.store, self._threads = store, threads

    def write(self, command: Write[T]) -> T:
        done = threading.Lock()
        done.acquire()
        pending = self.store.start(command, done.release)
        with done:
            return pending.result()

    def read(self, command: Read[T]) -> T:
        return self._threads.submit(self.store.run, command).result()


@contextmanager
def own_thread(path: Path) -> Iterator[OwnThread]:
    """A store whose caller runs everything on its own thread."""
    with open_store(path) as store:
        yield OwnThread(store)


@contextmanager
def other_threads(path: Path) -> Iterator[OtherThreads]:
    """A store whose caller passes everything to other threads and waits."""
    with open_store(path) as store, ThreadPoolExecutor(1) as threads:
        yield OtherThreads(store, threads)


def converse(runner: CommandRunner, turns: int, deltas: Sequence[str]) -> None:
    """Run turns in a new session, one after the other."""
    session = runner.write(commands.create(owner=OWNER)).id
    for _ in range(turns):
        run_turn(runner, session, deltas)


def run_turn(runner: CommandRunner, session: SessionId, deltas: Sequence[str]) -> None:
    """One turn: accepted, its history read, each delta checkpointed, ended, and its outcome read."""
    turn = runner.write(commands.submit(session, QUESTION, owner=OWNER, start=True)).opened
    if turn is None:
        raise RuntimeError(f"{session} is busy in a benchmark that is its only user")
    runner.read(commands.messages(session, owner=OWNER))
    for delta in deltas:
        turn = runner.write(commands.checkpoint(turn, [Text(delta)])).open
    runner.write(commands.finish(turn, Completed(), agents=("default",)))
    runner.read(commands.turn(turn.id, owner=OWNER))
