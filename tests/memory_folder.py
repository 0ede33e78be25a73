"""A folder in memory: programs sync files there as on a disk, at no cost."""

import os
import shutil
from functools import cache
from pathlib import Path

_MEMORY = Path("/dev/shm")
_ROOM = 2 << 30


@cache
def memory_folder() -> Path | None:
    """The system's folder in memory, if there is one with enough room for a test run."""
    if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
        return _MEMORY
    return None
