"""Scratch directories: one in memory for counting instructions, one on the disk for counting seconds."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import W_OK, access
from pathlib import Path

_MEMORY = Path("/dev/shm")


@contextmanager
def in_memory() -> Iterator[Path]:
    """A directory on tmpfs where there is one, so that syncs cost almost nothing; removed afterwards."""
    with _folder(_MEMORY if access(_MEMORY, W_OK) else None) as folder:
        yield folder


@contextmanager
def on_disk() -> Iterator[Path]:
    """A directory for temporary files (TMPDIR chooses another); removed afterwards."""
    with _folder(None) as folder:
        yield folder


@contextmanager
def _folder(parent: Path | None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="backstay-bench-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def copy(source: Path, target: Path) -> Path:
    """Copy a database that no process has open, which is then one complete file."""
    shutil.copyfile(source, target)
    return target
