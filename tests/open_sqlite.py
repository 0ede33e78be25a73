"""Opens a SQLite store with everything that a test may want to choose, down to the disk it lies on."""

from collections.abc import Sequence
from pathlib import Path

from backstay.clock import Clock
from backstay.model.limits import Limits
from backstay.store import Store
from backstay.store.sqlite.engine import SqliteEngine
from backstay.store.sqlite.files.file_system import MOUNTS
from backstay.store.sqlite.migrations import SqliteMigration
from backstay.testing.manual_clock import ManualClock
from tests.simulated_disk import Disk


def open_sqlite(
    path: Path,
    *,
    disk: Disk | None = None,
    clock: Clock | None = None,
    limits: Limits | None = None,
    lease_seconds: float = 30.0,
    wait_seconds: float = 10.0,
    steps: Sequence[SqliteMigration] | None = None,
    mounts: Path = MOUNTS,
) -> Store:
    """A store on this file; by default under a clock that stands still."""
    return Store(
        SqliteEngine(
            path,
            clock=clock or ManualClock(),
            limits=limits or Limits(),
            lease_seconds=lease_seconds,
            wait_seconds=wait_seconds,
            vfs=None if disk is None else disk.name,
            steps=steps,
            mounts=mounts,
        )
    )
