"""Facts about the machine that a reader needs to judge the figures."""

import os
import platform
import time
from pathlib import Path
from statistics import median

import apsw
import msgspec


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine and its disk; times in seconds."""

    cores: int
    processor: str
    system: str
    filesystem: str
    sync_median: float
    sync_p95: float
    python: str
    sqlite: str
    load: float


def examine_machine(room: Path) -> Machine:
    """Measure the disk of a directory, and collect the rest."""
    middle, high = _sync_times(room)
    return Machine(
        cores=os.cpu_count() or 1,
        processor=_processor(),
        system=f"{platform.system()} {platform.release()}",
        filesystem=filesystem_of(room),
        sync_median=middle,
        sync_p95=high,
        python=platform.python_version(),
        sqlite=apsw.sqlite_lib_version(),
        load=os.getloadavg()[0],
    )


def filesystem_of(path: Path) -> str:
    """The type of the filesystem that holds a path; "" where the system does not say."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return ""
    found = [line.split()[1:3] for line in mounts.read_text().splitlines()]
    holding = [(len(Path(where).parts), kind) for where, kind in found if path.resolve().is_relative_to(where)]
    return max(holding, default=(0, ""))[1]


def _sync_times(room: Path) -> tuple[float, float]:
    waits = []
    path = room / "sync-probe"
    with path.open("wb", buffering=0) as file:
        for _ in range(200):
            file.write(b"x" * 4096)
            start = time.perf_counter()
            os.fdatasync(file.fileno()) if hasattr(os, "fdatasync") else os.fsync(file.fileno())
            waits.append(time.perf_counter() - start)
    path.unlink()
    return median(waits), sorted(waits)[190]


def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
