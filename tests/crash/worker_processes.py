"""Real processes for tests: several that start their work at the same moment, and single ones that die."""

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Children are forked from a server that has imported what they need and has never opened a store.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "backstay.store.postgres.engine",
        "tests.crash.test_firing_kill",
        "tests.crash.test_process_kill",
        "tests.move.test_killed_move",
        "tests.runtime_processes.agent_programs",
        "tests.runtime_processes.app_programs",
        "tests.store.sqlite.test_sqlite_engine",
        "tests.store.test_races",
    ]
)

PATIENCE = 120.0


class WorkerProcesses:
    """Some processes that wait for work and begin it together."""

    def __init__(self, size: int) -> None:
        self._barrier = PROCESSES.Barrier(size)
        pairs = [PROCESSES.Pipe() for _ in range(size)]
        self._pipes = [ours for ours, _ in pairs]
        self._processes = [
            PROCESSES.Process(target=_serve, args=(rank, theirs, self._barrier), daemon=True)
            for rank, (_, theirs) in enumerate(pairs)
        ]
        for process in self._processes:
            process.start()
        for _, theirs in pairs:
            theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            if error is None:
                pipe.send(None)
            else:
                process.kill()
            process.join(PATIENCE)
            process.close()
            pipe.close()

    def all(self, work: Callable[Concatenate[int, P], T], *args: P.args, **kwargs: P.kwargs) -> list[T]:
        """The result of each process, which gets its rank first. A failing process fails the test."""
        for pipe in self._pipes:
            pipe.send((work, args, kwargs))
        return [_answer(pipe) for pipe in self._pipes]


def _serve(rank: int, pipe: "Connection[Any, Any]", barrier: Barrier) -> None:
    while (task := pipe.recv()) is not None:
        work, args, kwargs = task
        barrier.wait(PATIENCE)
        try:
            pipe.send((work(rank, *args, **kwargs), None))
        except BaseException:  # noqa: BLE001  # whatever it was, the test must see it
            pipe.send((None, traceback.format_exc()))


def _answer(pipe: "Connection[Any, Any]") -> Any:  # Any: whatever the work returned
    assert pipe.poll(PATIENCE), "a worker process is silent"
    value, failure = pipe.recv()
    assert failure is None, failure
    return value


def die() -> None:
    """Kill this process with SIGKILL, as the kernel does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def open_files(path: Path) -> list[str]:
    """The files of a database, its logs and locks among them, that this process has open."""
    targets = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # The one that lists them is closed by now.
            targets.append(str(descriptor.readlink()))
    return [target for target in targets if target.startswith(str(path))]
