"""The durability of a peer's acknowledged turn: its syncs per turn, its journal mode, its `synchronous` setting."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.peers.catalog import Peer
from benchmarks.peers.worker_process import WorkerFailed, WorkerProcess

TURNS = 20
_MAGIC = b"SQLite format 3\0"


class Durability(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence. `syncs` is None without strace; `journal` is "" without a database, `synchronous` if unknown."""

    syncs: float | None
    journal: str
    synchronous: str

    @property
    def survives_power_loss(self) -> bool | None:
        """Whether an acknowledged turn is on the disk; None if there is no evidence."""
        if self.syncs is not None:
            return self.syncs >= 1
        return None if not self.synchronous else self.synchronous in {"FULL", "EXTRA"}


def examine(peer: Peer, python: Path, room: Path) -> Durability:
    """Record some turns in a worker that is watched, and under strace where there is one.

    Raises:
        WorkerFailed: The peer could not record.
    """
    store, log, trace = room / "store", room / "worker.log", room / "syncs"
    store.mkdir(parents=True)
    traced = shutil.which("strace") is not None
    under = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,sync_file_range", "-o", str(trace)] if traced else []
    with WorkerProcess(peer, python, log, under=under, watched=True) as worker:
        _do(worker, "open", directory=str(store))
        _do(worker, "create", name="durable")
        _do(worker, "record", name="durable", count=5)
        before = _syncs(trace)
        _do(worker, "record", name="durable", count=TURNS)
        syncs = (_syncs(trace) - before) / TURNS if traced else None
        levels = _do(worker, "pragmas")["synchronous"]
        journal = next(_journals(store), "")
    return Durability(syncs=syncs, journal=journal, synchronous="/".join(levels))


def _do(worker: WorkerProcess, do: str, **arguments: object) -> dict[str, list[str]]:
    answer = worker.ask(do, **arguments)
    if "error" in answer:
        raise WorkerFailed(answer["error"])
    return answer


def _syncs(trace: Path) -> int:
    return trace.read_bytes().count(b"sync(") if trace.exists() else 0


def _journals(store: Path) -> Iterator[str]:
    """The journal mode in the header of each database: bytes 18 and 19 are 2 in WAL mode."""
    for path in sorted(store.glob("*.db")):
        head = path.read_bytes()[:20]
        if head.startswith(_MAGIC):
            yield "WAL" if head[18] == head[19] == 2 else "rollback journal"
