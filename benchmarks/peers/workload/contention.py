"""Four processes write one session: how many turns per second are acknowledged, and what the history keeps of them."""

import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.peers.catalog import Peer
from benchmarks.peers.report.ratios import percentile
from benchmarks.peers.worker_process import WorkerFailed, WorkerProcess
from benchmarks.peers.workload.anomalies import Anomalies, count_anomalies
from benchmarks.peers.workload.workloads import CONTENDED

PROCESSES = 4


class Burst(msgspec.Struct, frozen=True, kw_only=True):
    """One burst of four processes on one session; waits in seconds, None if no turn was acknowledged."""

    rate: float
    median_wait: float | None
    p99_wait: float | None


class Ring:
    """Four processes of one peer that write one session, and a fifth that reads it at the end."""

    def __init__(self, peer: Peer, python: Path, room: Path, stack: ExitStack) -> None:
        self._store = room / "store"
        self._store.mkdir(parents=True)
        # All start at once: the imports of some peers take seconds.
        processes = [WorkerProcess(peer, python, room / "worker.log") for _ in range(PROCESSES + 1)]
        for process in processes:
            stack.enter_context(process)
        *self._writers, self._reader = processes
        self._runs: list[_Run] = []

    def open(self) -> None:
        """Create the session, and open it in every process that writes.

        Raises:
            WorkerFailed: The peer does not support it, or failed.
        """
        for number, writer in enumerate(self._writers):
            _checked(writer.ask("open", directory=str(self._store)))
            if number == 0:
                _checked(writer.ask("create", name=CONTENDED))
            _checked(writer.ask("read", name=CONTENDED))

    def burst(self, number: int, seconds: float) -> Burst:
        """Let the four processes record turns at once.

        Raises:
            WorkerFailed: A process ended.
        """
        start = time.monotonic() + 0.1
        for process, writer in enumerate(self._writers):
            tag = f"{number}.{process}"
            writer.send("contend", name=CONTENDED, tag=tag, start=start, seconds=seconds)
        runs = [msgspec.convert(_checked(writer.receive()), _Run) for writer in self._writers]
        self._runs += runs
        waits = [wait for run in runs for wait in run.waits]
        return Burst(
            rate=len(waits) / max(run.seconds for run in runs),
            median_wait=percentile(waits, 0.5) if waits else None,
            p99_wait=percentile(waits, 0.99) if waits else None,
        )

    def rejections(self) -> dict[str, int]:
        """How many writes were rejected in all bursts, by the name of the error."""
        return dict(Counter(reason for run in self._runs for reason in run.rejected.values()))

    def anomalies(self) -> Anomalies:
        """Read the history in a process that wrote nothing, and count the damage of all bursts.

        Raises:
            WorkerFailed: The history cannot be read.
        """
        _checked(self._reader.ask("open", directory=str(self._store)))
        history = _checked(self._reader.ask("read", name=CONTENDED))["tags"]
        acknowledged = [tag for run in self._runs for tag in run.acknowledged]
        rejected = [tag for run in self._runs for tag in run.rejected]
        return count_anomalies(history, acknowledged, rejected)


class _Run(msgspec.Struct):
    acknowledged: list[str]
    waits: list[float]
    rejected: dict[str, str]
    seconds: float


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise WorkerFailed(str(answer["error"]))
    return answer
