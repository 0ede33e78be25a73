"""What the database file lies on: refuses network file systems, keeps files private, notices a replaced file."""

import contextlib
import errno
import os
import re
from pathlib import Path
from typing import NamedTuple

from backstay.errors import StoreReadOnly, StoreUnavailable

# Locks and shared memory, on which SQLite's WAL mode stands, do not reach across machines here.
NETWORK = frozenset(
    "nfs nfs4 cifs smb3 smbfs 9p afs ceph glusterfs lustre beegfs ocfs2 gfs2 gpfs davfs"
    " fuse.sshfs fuse.s3fs fuse.rclone fuse.glusterfs fuse.gcsfuse fuse.cephfs fuse.davfs2".split()
)
MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")


class FileIdentity(NamedTuple):
    """Which file a path names, whatever it is called."""

    device: int
    inode: int


def identity(path: Path) -> FileIdentity | None:
    """The file behind the path now, or None. Looks at the directory only: the file itself is never opened."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be looked at: {error.strerror}", hint="Check the directory.") from error
    return FileIdentity(found.st_dev, found.st_ino)


def refuse_replaced(path: Path, file: FileIdentity) -> None:
    """Raise unless the path still names this file: another one must not meet our log."""
    try:
        found = os.stat(path)  # noqa: PTH116  # before every write, and twice as quick as the path's own
        same = (found.st_dev, found.st_ino) == file
    except OSError:
        same = False
    if not same:
        raise StoreUnavailable(
            f"{path} was moved, deleted or replaced while it was open",
            hint="Put the file back or open the store again; never copy over a live database.",
        )


def create_private(path: Path) -> None:
    """Create the database file if it is not there, readable by its owner alone, in a directory of the same kind."""
    if identity(path) is not None:
        return
    try:
        _make_directory(path.parent)
        _create(path)
    except OSError as error:
        if error.errno == errno.EROFS:
            raise StoreReadOnly(f"{path} cannot be created: the file system is read-only") from error
        raise StoreUnavailable(
            f"{path} cannot be created: {_reason(path, error)}", hint="Name another file."
        ) from error


def _make_directory(path: Path) -> None:
    """Make it, and whatever above it is missing; a power loss takes none of them with the database inside."""
    if path.exists():
        return
    _make_directory(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    above = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(above)
    finally:
        os.close(above)


def _reason(path: Path, error: OSError) -> str:
    above = next((one for one in path.parents if one.exists()), path.parent)
    return f"{above} is not a directory" if not above.is_dir() else str(error.strerror)


def _create(path: Path) -> None:
    # Exclusive: a file that exists may be open in this process, and closing a second handle would drop its locks.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def refuse_network(path: Path, mounts: Path = MOUNTS) -> None:
    """Raise if the file would lie on a network file system."""
    kind = kind_of(path, mounts)
    if kind in NETWORK:
        raise StoreUnavailable(
            f"{path} lies on a network file system ({kind}), where file locks cannot be trusted",
            hint="Put the file on a local disk, or use PostgreSQL for several machines.",
        )


def kind_of(path: Path, mounts: Path) -> str | None:
    """The type of the file system with the longest mount point above the path; None where the system does not say."""
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
