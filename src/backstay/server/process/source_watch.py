"""Watches the Python files of a directory, for a server that reloads its agents while they are written."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_SECONDS = 0.3
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages"})

Stamps = dict[str, tuple[int, int]]


class SourceWatch:
    """Checks the files periodically. No file is watched before `run`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = stamps(folder)
        self._next_change = asyncio.Event()

    @property
    def next_change(self) -> asyncio.Event:
        """The event that the next change sets; after it there is another."""
        return self._next_change

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(_SECONDS)
            found = await asyncio.to_thread(stamps, self._folder)
            if found != self._seen:
                self._seen = found
                changed, self._next_change = self._next_change, asyncio.Event()
                changed.set()


def stamps(folder: Path) -> Stamps:
    """The time of change and the size of each Python file below the folder."""
    found: Stamps = {}
    for path in _python_files(folder):
        with suppress(OSError):  # Editors replace files: a file may be missing for a moment.
            status = path.stat()
            found[str(path)] = (status.st_mtime_ns, status.st_size)
    return found


def _python_files(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _LEFT_OUT and not name.startswith(".")]
        yield from (Path(parent, name) for name in files if name.endswith(".py"))
