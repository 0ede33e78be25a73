"""Time, as two clocks: the wall for people, the boot clock for leases."""

import time
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """Where all time comes from. Tests hand in one they move themselves."""

    @property
    def boot_id(self) -> str:
        """Names the run of the machine in which `boot` counts; boot times of two runs do not compare."""
        ...

    def now(self) -> int:
        """Milliseconds since 1970 in UTC; a person may set this clock back."""
        ...

    def boot(self) -> int:
        """Milliseconds since the machine started, sleep included; never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def __init__(self) -> None:
        self._boot_id = _read_boot_id()

    @property
    def boot_id(self) -> str:
        return self._boot_id

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def boot(self) -> int:
        return time.clock_gettime_ns(_BOOT) // 1_000_000


# Where the system has no boot clock (macOS), the monotonic clock pauses during sleep: a lease then lasts longer, never
# shorter, than it says; the fence keeps it safe.
_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _read_boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # Rounded, because both clocks drift against each other by far less than ten seconds between two readings.
        started = time.time() - time.clock_gettime(_BOOT)
        return f"started-{round(started / 10)}"
