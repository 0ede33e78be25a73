"""pgbouncer in transaction pooling mode: found on the system, or fetched once from Debian's archive without root.

No package index has pgbouncer's program. On Debian and Ubuntu `apt-get download` needs no rights: the package and the
libraries it names are unpacked into this environment, and `make clean` removes them with it.
"""

import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.postgres_servers.daemon import PATIENCE, Daemon
from tests.postgres_servers.postgres import HOST, USER, Home, at, free_port

CACHE = Path(sys.prefix) / "pgbouncer"
ADVICE = (
    "pgbouncer was not found, and could not be fetched with `apt-get download pgbouncer`. Install it (Debian, Ubuntu: "
    "apt update && apt install pgbouncer; Fedora: dnf install pgbouncer; macOS: brew install pgbouncer) or name the "
    "program in BACKSTAY_PGBOUNCER."
)
# All other settings keep the server's defaults, as they would for a user.
CONFIGURATION = """\
[databases]
* = host={host} port={port} user={user}

[pgbouncer]
listen_addr = {host}
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 500
"""


class Program(NamedTuple):
    """pgbouncer, and the folder of libraries it needs besides the system's."""

    path: Path
    libraries: Path | None = None

    def environment(self) -> dict[str, str]:
        """The variables by which it finds its libraries."""
        return {} if self.libraries is None else {"LD_LIBRARY_PATH": str(self.libraries)}


class Pgbouncer:
    """A pool in front of a server: each transaction may use another connection than the previous one."""

    def __init__(self, home: Home, target: int) -> None:
        program = _reachable(pgbouncer(), home)
        folder = home.folder()
        self.port = free_port()
        configuration = folder / "pgbouncer.ini"
        configuration.write_text(CONFIGURATION.format(host=HOST, port=target, user=USER, listen=self.port))
        configuration.chmod(0o644)
        self._daemon = Daemon(
            [str(program.path), str(configuration)],
            account=home.account,
            log=folder / "pgbouncer.log",
            ready="process up",
            stop=signal.SIGTERM,
            environment=program.environment(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._daemon.close()

    def url(self, database: str, **parameters: str) -> str:
        """A database of the server, by way of the pool."""
        return at(self.port, database, **parameters)


@functools.cache
def pgbouncer() -> Program:
    """The program: the one from the environment variable, the system's, or Debian's."""
    chosen = os.environ.get("BACKSTAY_PGBOUNCER") or shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if chosen:
        return Program(Path(chosen))
    if not CACHE.exists():
        _fetch()
    library = next(CACHE.glob("usr/lib/*/libevent*.so.*"))
    return Program(CACHE / "usr/sbin/pgbouncer", library.parent)


def _fetch() -> None:
    """Unpack Debian's package beside our own, atomically."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise RuntimeError(ADVICE)
    with tempfile.TemporaryDirectory(dir=CACHE.parent) as name:
        folder = Path(name)
        try:
            _download(folder)
            for package in folder.glob("*.deb"):
                _run("dpkg", "-x", str(package), "root", folder=folder)
        except subprocess.SubprocessError as error:
            raise RuntimeError(f"{ADVICE}\n{getattr(error, 'stderr', '')}") from error
        try:
            (folder / "root").rename(CACHE)
        except OSError:
            if not CACHE.exists():
                raise
            # Another process of this test run was first.


def _download(folder: Path) -> None:
    """With the system's package list; with our own where the system has none, as in most containers."""
    try:
        _download_with(folder)
    except subprocess.CalledProcessError:
        for place in ("lists", "cache"):
            (folder / place / "partial").mkdir(parents=True)
        own = ("-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache")
        _run("apt-get", *own, "update", folder=folder)
        _download_with(folder, *own)


def _download_with(folder: Path, *options: str) -> None:
    said = _run("apt-cache", *options, "depends", "--important", "pgbouncer", folder=folder)
    named = [line.split()[-1] for line in said.splitlines() if line.strip().startswith("Depends: lib")]
    # The C library is everywhere, and only the system's own fits.
    libraries = [name for name in named if name != "libc6"]
    _run("apt-get", *options, "download", "pgbouncer", *libraries, folder=folder)


def _run(*command: str, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=PATIENCE)
    return done.stdout


def _reachable(program: Program, home: Home) -> Program:
    """The same for the servers' account: a copy if it may not enter where the program lies."""
    if program.libraries is None:
        return program
    copy = home.path / "pgbouncer"
    if not copy.exists():
        shutil.copytree(CACHE, copy, symlinks=True)
    return Program(copy / program.path.relative_to(CACHE), copy / program.libraries.relative_to(CACHE))
