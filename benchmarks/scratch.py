"""Scratch room: a directory in memory for counting instructions, one on the disk for counting seconds."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import W_OK, access
from pathlib import Path

_MEMORY = Path("/dev/shm")


@contextmanager
def in_memory() -> Iterator[Path]:
    """A directory on tmpfs where there is one, so that syncs cost next to nothing; gone afterwards."""
    with _room(_MEMORY if access(_MEMORY, W_OK) else None) as room:
        yield room


@contextmanager
def on_disk() -> Iterator[Path]:
    """A directory where temporary files usually lie (TMPDIR chooses another); gone afterwards."""
    with _room(None) as room:
        yield room


@contextmanager
def _room(parent: Path | None) -> Iterator[Path]:
    room = Path(tempfile.mkdtemp(prefix="backstay-bench-", dir=parent))
    try:
        yield room
    finally:
        shutil.rmtree(room, ignore_errors=True)


def copy(source: Path, target: Path) -> Path:
    """A copy of a database that no process has open, which is then one whole file."""
    shutil.copyfile(source, target)
    return target
