"""The directories that an agent's program may work under."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Self

import msgspec

from backstay.errors import ConfigError


class AgentRoots(msgspec.Struct, frozen=True):
    """Real paths of directories. A program may work in them and below them.

    `private` is the folder of the database: a program may work in it or below only if a root is there too.
    """

    paths: tuple[str, ...]
    private: str | None = None

    @classmethod
    def of(cls, paths: Iterable[str | os.PathLike[str]], *, database: str | os.PathLike[str] | None = None) -> Self:
        """Make roots from these directories.

        Args:
            paths: Directories; `~` is the home directory. Links are resolved now.
            database: The folder of the database, if it is a file.

        Raises:
            ConfigError: A path is not a directory.
        """
        found = dict.fromkeys(map(_real_directory, paths))
        return cls(tuple(found), None if database is None else os.path.realpath(database))

    def allow(self, real: str) -> bool:
        """Whether a program may work in the directory with this real path."""
        return any(_is_under(real, root) and self._may_reach(real, root) for root in self.paths)

    def _may_reach(self, real: str, root: str) -> bool:
        return self.private is None or not _is_under(real, self.private) or _is_under(root, self.private)


def is_too_wide(path: str) -> bool:
    """Whether this real path is too wide for a default root: the whole disk, or the home directory."""
    return path in ("/", os.path.realpath(Path.home()))


def _real_directory(path: str | os.PathLike[str]) -> str:
    found = Path(path).expanduser()
    if not found.is_dir():
        raise ConfigError(f"{path} is not a directory", hint="Name a directory that the agent may work under.")
    return os.path.realpath(found)


def _is_under(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
