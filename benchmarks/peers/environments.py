"""One virtual environment per peer, made once from pinned requirements of the package index."""

import subprocess
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from benchmarks.peers.catalog import ENVIRONMENTS, REQUIREMENTS, Peer

MARK = ".requirements"


class InstallFailed(Exception):
    """The environment of a peer could not be made; the text is the end of the output of pip."""


def python_of(peer: Peer, say: Callable[[str], None]) -> Path:
    """The interpreter of the peer's environment, which is made if it is missing or out of date.

    Raises:
        InstallFailed: The package index does not have the pinned version, or pip failed.
    """
    if not peer.environment:
        return Path(sys.executable)
    home, wanted = ENVIRONMENTS / peer.environment, REQUIREMENTS / f"{peer.environment}.txt"
    python = home / "bin" / "python"
    mark = home / MARK
    if not (python.exists() and mark.exists() and mark.read_text() == _fingerprint(wanted)):
        say(f"Making {home.relative_to(ENVIRONMENTS.parent)} from {wanted.name}; this happens once.")
        start = time.monotonic()
        _run(sys.executable, "-m", "venv", "--clear", str(home))
        _run(str(python), "-m", "pip", "install", "--disable-pip-version-check", "--requirement", str(wanted))
        mark.write_text(_fingerprint(wanted))
        say(f"  made in {time.monotonic() - start:.0f} s")
    return python


def version_of(python: Path, package: str) -> str:
    """The version of an installed distribution."""
    program = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
    return subprocess.run([str(python), "-c", program], check=True, capture_output=True, text=True).stdout.strip()


def _fingerprint(requirements: Path) -> str:
    return sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise InstallFailed("\n".join((done.stdout + done.stderr).strip().splitlines()[-4:]))
