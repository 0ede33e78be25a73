"""Removes a folder when a test run has ended, in whatever way.

A program of its own: `python folder_remover.py <folder>`, with one end of a pipe that the test run holds. It needs
nothing but the standard library.
"""

import shutil
import sys
import threading
from pathlib import Path

# Servers that stop at the same moment may still write: the number of attempts, and the seconds between them.
TRIES, PAUSE = 200, 0.1


def main(folder: Path) -> None:
    """Wait for the end of the pipe, then remove the folder."""
    sys.stdin.read()
    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        threading.Event().wait(PAUSE)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
