"""The driver: all workers stay open, and their rounds alternate with rounds of the floor."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from benchmarks.peers.catalog import FLOOR, PEERS, Peer
from benchmarks.peers.environments import InstallFailed, python_of, version_of
from benchmarks.peers.machine import examine_machine
from benchmarks.peers.report.ratios import Pair
from benchmarks.peers.report.results import Cell, Contender, ContentionCell, Results
from benchmarks.peers.seeds import place_seed
from benchmarks.peers.worker_process import WorkerFailed, WorkerProcess
from benchmarks.peers.workload.contention import Burst, Ring
from benchmarks.peers.workload.durability import Durability, examine
from benchmarks.peers.workload.workloads import CROWD_KEY, WORKLOADS, Workload

Say = Callable[[str], None]
FEWEST_ROUNDS = 3


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured; times in seconds."""

    short: bool
    rounds: int
    round_seconds: float
    cell_seconds: float
    burst_seconds: float
    bursts: int


SHORT = Plan(
    short=True,
    rounds=6,
    round_seconds=0.02,
    cell_seconds=0.6,
    burst_seconds=0.4,
    bursts=3,
)
FULL = Plan(
    short=False,
    rounds=21,
    round_seconds=0.06,
    cell_seconds=12.0,
    burst_seconds=1.0,
    bursts=9,
)


class Stand(msgspec.Struct, frozen=True, kw_only=True):
    """A peer that takes part: its interpreter, and the directory for its stores."""

    peer: Peer
    python: Path
    room: Path


def measure(plan: Plan, peers: Sequence[Peer], room: Path, say: Say) -> Results:
    """Measure all workloads of these peers in a directory on a disk."""
    start = time.monotonic()
    machine = examine_machine(room)
    skipped: dict[str, str] = {}
    say("Environments and histories")
    stands = list(_stands([FLOOR, *peers], room, skipped, say))
    with ExitStack() as stack:
        workers = {stand.peer.key: stack.enter_context(_started(stand)) for stand in stands}
        for stand in stands:
            _open(workers[stand.peer.key], stand)
        cells = {workload.key: _cells(workload, workers, plan, say) for workload in WORKLOADS}
    contention = list(_contention(stands, plan, say))
    contenders = [_contender(stand, say) for stand in stands]
    return Results(
        day=datetime.now(UTC).date().isoformat(),
        short=plan.short,
        seconds=time.monotonic() - start,
        machine=machine,
        contenders=contenders,
        cells=cells,
        contention=contention,
        skipped=skipped,
    )


def _stands(peers: Sequence[Peer], room: Path, skipped: dict[str, str], say: Say) -> Iterator[Stand]:
    """Make environments and write histories; a peer that fails is skipped and reported."""
    for peer in peers:
        try:
            python = python_of(peer, say)
            stand = Stand(peer=peer, python=python, room=room / peer.key)
            stand.room.mkdir()
            place_seed(peer, python, stand.room / "seeded", say)
        except (InstallFailed, WorkerFailed) as error:
            say(f"  {peer.title}: SKIPPED: {error}")
            skipped[peer.title] = str(error)
            if peer is FLOOR:
                raise
        else:
            yield stand


def _started(stand: Stand) -> WorkerProcess:
    return WorkerProcess(stand.peer, stand.python, stand.room / "worker.log")


def _open(worker: WorkerProcess, stand: Stand) -> None:
    answer = worker.ask("open", directory=str(stand.room / "seeded"))
    if "error" in answer:
        raise WorkerFailed(answer["error"])


def _cells(workload: Workload, workers: dict[str, WorkerProcess], plan: Plan, say: Say) -> list[Cell]:
    """One workload: warm every worker up, then let rounds of all of them alternate with rounds of the floor."""
    say(workload.title)
    floor = workers[FLOOR.key]
    counts = {FLOOR.key: _warmed(floor, workload, plan)[0]}
    cells: dict[str, Cell] = {}
    rounds: dict[str, int] = {}
    for key, worker in workers.items():
        if key == FLOOR.key or (worker.peer.only and workload.key not in worker.peer.only):
            continue
        try:
            counts[key], rounds[key] = _warmed(worker, workload, plan)
            cells[key] = Cell(peer=key)
        except WorkerFailed as failure:
            cells[key] = Cell(peer=key, reason=str(failure))
    for number in range(plan.rounds):
        for key in _turned([key for key in cells if rounds.get(key, 0) > number], number):
            pair = _pair(floor, workers[key], workload, counts, number)
            if isinstance(pair, str):
                cells[key], rounds[key] = Cell(peer=key, reason=pair), 0
            else:
                cells[key].pairs.append(pair)
    for cell in cells.values():
        say(f"  {workers[cell.peer].peer.title:<22} {cell.spread or '— ' + cell.reason}")
    return list(cells.values())


def _warmed(worker: WorkerProcess, workload: Workload, plan: Plan) -> tuple[int, int]:
    """The number of operations in one round, and the number of rounds that the time allows.

    Raises:
        WorkerFailed: The peer does not offer the operation, or it failed; the text is the reason.
    """
    together = workload.key == CROWD_KEY
    seconds = _run(worker, workload, workload.most if together else 1, 0)
    if seconds < plan.round_seconds:
        seconds = _run(worker, workload, workload.most if together else min(3, workload.most), 0)
    count = workload.most if together else max(1, min(workload.most, int(plan.round_seconds / seconds)))
    return count, max(FEWEST_ROUNDS, min(plan.rounds, int(plan.cell_seconds / (seconds * count))))


def _pair(
    floor: WorkerProcess, worker: WorkerProcess, workload: Workload, counts: dict[str, int], round: int
) -> Pair | str:
    """One round of the peer and one of the floor, in alternating order; the reason if the peer fails."""
    own = least = 0.0
    try:
        for turn in (worker, floor) if round % 2 else (floor, worker):
            seconds = _run(turn, workload, counts[turn.peer.key], round)
            own, least = (own, seconds) if turn is floor else (seconds, least)
    except WorkerFailed as failure:
        return str(failure)
    return Pair(floor=least, peer=own)


def _run(worker: WorkerProcess, workload: Workload, count: int, round: int) -> float:
    """Seconds per operation."""
    answer = worker.ask("run", workload=workload.key, count=count, round=round)
    if "seconds" not in answer:
        raise WorkerFailed(answer.get("unsupported") or f"It failed: {answer['error']}")
    return float(answer["seconds"])


def _turned(keys: Sequence[str], by: int) -> list[str]:
    """The keys in another order each round, so that no peer always runs after the same one."""
    at = by % len(keys) if keys else 0
    return [*keys[at:], *keys[:at]]


def _contention(stands: Sequence[Stand], plan: Plan, say: Say) -> Iterator[ContentionCell]:
    """Bursts of four processes of each peer alternate with bursts of four processes of the floor."""
    say("4 processes, one session")
    with ExitStack() as stack:
        floor = next(_ring(stand, stack) for stand in stands if stand.peer is FLOOR)
        floor.open()
        for stand in stands:
            if stand.peer.contends and stand.peer is not FLOOR:
                cell = _contended(stand, floor, plan)
                say(f"  {stand.peer.title:<22} {cell.rates or '— ' + cell.reason} {cell.anomalies}")
                yield cell


def _contended(stand: Stand, floor: Ring, plan: Plan) -> ContentionCell:
    bursts: list[Burst] = []
    floors: list[Burst] = []
    try:
        with ExitStack() as stack:
            ring = _ring(stand, stack)
            ring.open()
            for number in range(plan.bursts):
                floors.append(floor.burst(number, plan.burst_seconds))
                bursts.append(ring.burst(number, plan.burst_seconds))
            return ContentionCell(
                peer=stand.peer.key,
                bursts=bursts,
                floors=floors,
                anomalies=ring.anomalies(),
                rejections=ring.rejections(),
            )
    except WorkerFailed as failure:
        return ContentionCell(peer=stand.peer.key, reason=str(failure))


def _ring(stand: Stand, stack: ExitStack) -> Ring:
    return Ring(stand.peer, stand.python, stand.room / "contention", stack)


def _contender(stand: Stand, say: Say) -> Contender:
    peer = stand.peer
    durability: Durability | None = None
    try:
        durability = examine(peer, stand.python, stand.room / "durability")
    except WorkerFailed as failure:
        say(f"  {peer.title}: its durability is not known: {failure}")
    version = version_of(stand.python, peer.package) if peer.package else ""
    return Contender(key=peer.key, title=peer.title, version=version, about=peer.about, durability=durability)


def chosen(only: Sequence[str] | None) -> list[Peer]:
    """The peers with these keys; all if none is named."""
    return [peer for peer in PEERS if not only or peer.key in only]
