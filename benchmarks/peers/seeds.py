"""The store of each peer before the first round: written in memory, where syncs are cheap, then copied to the disk.

Seeds of peers are kept beside their environments, because some need a minute for theirs. Those of Backstay and of the
floor are written again in each run, because their code changes here.
"""

import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.instruments.scratch_folders import in_memory
from benchmarks.peers.catalog import ENVIRONMENTS, REQUIREMENTS, Peer
from benchmarks.peers.worker_process import WorkerFailed, WorkerProcess

_KEPT = ENVIRONMENTS / "seeds"


def place_seed(peer: Peer, python: Path, target: Path, say: Callable[[str], None]) -> None:
    """Put a seeded store of the peer into the new directory `target`.

    Raises:
        WorkerFailed: The peer could not write it.
    """
    if not peer.environment:
        _write(peer, python, target, say)
        return
    kept = _KEPT / f"{peer.key}-{_fingerprint(peer)}"
    if not kept.exists():
        _KEPT.mkdir(exist_ok=True)
        with TemporaryDirectory(dir=_KEPT) as draft:
            _write(peer, python, Path(draft) / "store", say)
            (Path(draft) / "store").rename(kept)
    shutil.copytree(kept, target)


def _write(peer: Peer, python: Path, target: Path, say: Callable[[str], None]) -> None:
    say(f"  {peer.title}: writing its history")
    with in_memory() as room:
        store = room / "store"
        store.mkdir()
        with WorkerProcess(peer, python, room / "worker.log") as worker:
            for command in ({"do": "open", "directory": str(store)}, {"do": "seed"}):
                answer = worker.ask(**command)
                if "error" in answer:
                    raise WorkerFailed(answer["error"])
        shutil.copytree(store, target)


def _fingerprint(peer: Peer) -> str:
    """Changes with everything that the seed depends on."""
    here = Path(__file__).parent
    names = ("adapter.py", "workload/content.py", "workload/workloads.py", f"adapters/{peer.adapter}.py")
    sources = [here / name for name in names]
    sources.append(REQUIREMENTS / f"{peer.environment}.txt")
    return sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
