"""The file system of the database file: rejects network file systems, keeps files private, identifies files."""

import errno
import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from backstay.errors import ConfigError, StoreError, StoreReadOnly, StoreUnavailable

# On these file systems, locks and shared memory, which SQLite's WAL mode needs, do not work across machines.
NETWORK = frozenset(
    "nfs nfs4 cifs smb3 smbfs 9p afs ceph glusterfs lustre beegfs ocfs2 gfs2 gpfs davfs"
    " fuse.sshfs fuse.s3fs fuse.rclone fuse.glusterfs fuse.gcsfuse fuse.cephfs fuse.davfs2".split()
)
MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")


class FileIdentity(NamedTuple):
    """Identifies a file independently of its name."""

    device: int
    inode: int


def identity(path: Path) -> FileIdentity | None:
    """The file that the path names now, or None. Reads the directory only: the file itself is never opened."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be accessed: {error.strerror}", hint="Check the directory.") from error
    return FileIdentity(found.st_dev, found.st_ino)


def size_of(path: Path) -> int:
    """The size of the file in bytes; 0 if there is none, because another process may delete it at any time."""
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be accessed: {error.strerror}", hint="Check the directory.") from error


def holds_nothing(path: Path) -> bool:
    """Whether the file is missing or empty."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be accessed: {error.strerror}", hint="Check the directory.") from error
    return stat.S_ISREG(found.st_mode) and found.st_size == 0


def make_directory(path: Path) -> None:
    """Create the directory of a file if needed, private to its owner."""
    try:
        _make_directory(path.parent)
    except OSError as error:
        raise cannot_be_created(path, error) from error


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive power loss."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def cannot_be_created(path: Path, error: OSError) -> StoreError | ConfigError:
    """The error for a file that cannot be created.

    A path below a file is a configuration error: waiting does not help.
    """
    above = next((one for one in path.parents if one.exists()), path.parent)
    if not above.is_dir():
        return ConfigError(f"{path} cannot be created: {above} is not a directory", hint="Name another file.")
    if error.errno == errno.EROFS:
        return StoreReadOnly(f"{path} cannot be created: the file system is read-only")
    return StoreUnavailable(f"{path} cannot be created: {error.strerror}", hint="Name another file.")


def _make_directory(path: Path) -> None:
    """Create the directory and its missing parents. Each is synced, so that power loss does not remove the database."""
    if path.is_dir():
        return
    _make_directory(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    sync_directory(path.parent)


def refuse_network(path: Path, mounts: Path = MOUNTS) -> None:
    """Raise if the file would be on a network file system."""
    kind = kind_of(path, mounts)
    if kind in NETWORK:
        raise StoreUnavailable(
            f"{path} is on a network file system ({kind}), where file locks cannot be trusted",
            hint="Put the file on a local disk, or use PostgreSQL for several machines.",
        )


def kind_of(path: Path, mounts: Path) -> str | None:
    """The type of the file system with the longest mount point above the path; None if that is not known."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return None
    best, kind = -1, None
    for line in lines:
        before, _, after = line.partition(" - ")
        point = _ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), before.split(" ")[4])
        if len(point) >= best and path.is_relative_to(point):
            best, kind = len(point), after.split(" ")[0]
    return kind
