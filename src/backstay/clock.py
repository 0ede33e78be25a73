"""Two clocks: wall-clock time for people, and boot time for leases."""

import os
import time
from functools import cache
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """The source of all time. Tests pass a clock that they set themselves."""

    @property
    def boot_id(self) -> str:
        """Identifies the boot of the machine. Values of `boot` are comparable only within one boot."""
        ...

    def now(self) -> int:
        """Milliseconds since 1970 (UTC); may go back when the system's time is set."""
        ...

    def boot(self) -> int:
        """Milliseconds since the machine booted, including sleep; never goes back."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    @property
    def boot_id(self) -> str:
        return _read_boot_id()

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def boot(self) -> int:
        return time.clock_gettime_ns(_BOOT) // 1_000_000


def machine_zone() -> str:
    """The name of this machine's time zone, from TZ or /etc/localtime; UTC if neither names one."""
    named = os.environ.get("TZ", "").removeprefix(":")
    if named:
        return named.rpartition("zoneinfo/")[2]
    _, inside, name = os.path.realpath("/etc/localtime").rpartition("zoneinfo/")
    return name if inside else "UTC"


# Systems without a boot clock (macOS) use the monotonic clock, which stops during sleep. A lease can then last longer
# than its duration, never shorter; the fence still prevents stale writes.
_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@cache
def _read_boot_id() -> str:
    """Read it once: a process does not outlive the boot of its machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # Rounded to ten seconds: between two readings, the two clocks drift against each other by far less.
        started = time.time() - time.clock_gettime(_BOOT)
        return f"started-{round(started / 10)}"
