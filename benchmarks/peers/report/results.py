"""The results of a run, as they are written to raw.json."""

import msgspec

from benchmarks.peers.machine import Machine
from benchmarks.peers.report.ratios import Pair, Spread, spread
from benchmarks.peers.workload.anomalies import Anomalies
from benchmarks.peers.workload.contention import Burst
from benchmarks.peers.workload.durability import Durability


class Contender(msgspec.Struct, frozen=True, kw_only=True):
    """A peer in one run: its version, and what its acknowledged turns survive."""

    key: str
    title: str
    version: str
    about: str
    durability: Durability | None


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One peer under one workload: the rounds, or the reason why there are none."""

    peer: str
    pairs: list[Pair] = []
    reason: str = ""

    @property
    def spread(self) -> Spread | None:
        return spread(self.pairs) if self.pairs else None


class ContentionCell(msgspec.Struct, frozen=True, kw_only=True):
    """One peer with four processes on one session; each burst stands beside one of the floor."""

    peer: str
    bursts: list[Burst] = []
    floors: list[Burst] = []
    anomalies: Anomalies | None = None
    rejections: dict[str, int] = {}
    reason: str = ""

    @property
    def rates(self) -> Spread | None:
        """Acknowledged turns per second, against the floor."""
        return self._spread([(own.rate, floor.rate) for own, floor in self._pairs])

    @property
    def p99(self) -> Spread | None:
        """The 99th percentile of the wait, against the floor; higher is better."""
        waits = [(own.p99_wait, floor.p99_wait) for own, floor in self._pairs]
        return self._spread([(1 / own, 1 / floor) for own, floor in waits if own and floor])

    @property
    def _pairs(self) -> list[tuple[Burst, Burst]]:
        return list(zip(self.bursts, self.floors, strict=True))

    def _spread(self, speeds: list[tuple[float, float]]) -> Spread | None:
        pairs = [Pair(floor=1 / floor, peer=1 / own) for own, floor in speeds if own]
        return spread(pairs) if pairs else None


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """All results of a run."""

    day: str
    short: bool
    seconds: float
    machine: Machine
    contenders: list[Contender]
    cells: dict[str, list[Cell]]
    contention: list[ContentionCell]
    skipped: dict[str, str]
