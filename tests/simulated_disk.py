"""A disk under the test's control: it counts, fails, fills up, dies, and records every step for a later crash.

A disk calls its watchers before each step; a watcher that raises makes the step fail.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import apsw


class Write(NamedTuple):
    """A write of bytes to a file."""

    file: str
    offset: int
    data: bytes


class Sync(NamedTuple):
    """All writes to the file before this one survive power loss."""

    file: str


class Truncate(NamedTuple):
    """The file gets shorter."""

    file: str
    size: int


class Delete(NamedTuple):
    """The file is deleted; `lasting` if no power loss can restore it."""

    file: str
    lasting: bool


class Link(NamedTuple):
    """A file got another name, by which it was just opened."""

    file: str
    name: str


class Read(NamedTuple):
    """A read of bytes from a file."""

    file: str
    offset: int
    amount: int


class LostSync(NamedTuple):
    """A failed sync on a system that then drops the writes: no later sync restores them."""

    file: str


class Mark(NamedTuple):
    """An observation of the test at this point, such as an acknowledgement."""

    number: int


Step = Write | Sync | Truncate | Delete | Link | Read
Recorded = Step | LostSync | Mark
Watcher = Callable[[Step], None]

CHANGES = (Write, Sync, Truncate, Delete, Link)
_NAMES = threading.Lock()
_made = 0


def _new_name() -> str:
    global _made  # noqa: PLW0603  # the driver keeps its disks in one table of the process, by name
    with _NAMES:
        _made += 1
        return f"watched-{_made}"


class Disk(apsw.VFS):
    """The machine's own disk, watched. Open a store on it by its `name`, and close the store before the disk."""

    def __init__(self, *watchers: Watcher) -> None:
        self.name = _new_name()
        self.watchers = list(watchers)
        # While set, a database file can only be opened for reading, as without write permission.
        self.read_only = False
        # The same for its log.
        self.read_only_log = False
        self._turn = threading.RLock()
        self._names: dict[tuple[int, int], str] = {}
        # By its name: this disk may become the default one itself.
        self.base = apsw.vfs_names()[0]
        super().__init__(self.name, base=self.base)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unregister()

    def tell(self, step: Step) -> None:
        """Call every watcher before a step, one step at a time."""
        with self._turn:
            for watcher in self.watchers:
                watcher(step)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        if (self.read_only and flags[0] & apsw.SQLITE_OPEN_MAIN_DB) or (
            self.read_only_log and flags[0] & apsw.SQLITE_OPEN_WAL
        ):
            flags[0] = flags[0] & ~(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE) | apsw.SQLITE_OPEN_READONLY
        if name is not None and flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            self._notice_link(Path(name.filename() if isinstance(name, apsw.URIFilename) else name))
        return _File(self, name, flags)

    def _notice_link(self, path: Path) -> None:
        """SQLite never gives a file a second name; if it is opened by one, its owner has done so."""
        try:
            found = path.stat()
        except OSError:
            return
        named = _name_of(path)
        known = self._names.setdefault((found.st_dev, found.st_ino), named)
        if known != named:
            self._names[found.st_dev, found.st_ino] = named
            self.tell(Link(known, named))

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self.tell(Delete(_name_of(Path(filename)), bool(syncdir)))
        super().xDelete(filename, syncdir)

    def excepthook(
        self, etype: type[BaseException] | None, evalue: BaseException | None, etraceback: TracebackType | None
    ) -> bool:
        return _expected(evalue)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else name or "temporary"
        self._file = _name_of(Path(path))
        super().__init__(disk.base, name, flags)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802  # Any: collections.abc.Buffer is new in 3.12
        self._disk.tell(Write(self._file, offset, bytes(data)))
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.tell(Sync(self._file))
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.tell(Truncate(self._file, newsize))
        super().xTruncate(newsize)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._disk.tell(Read(self._file, offset, amount))
        return super().xRead(amount, offset)

    def excepthook(
        self, etype: type[BaseException] | None, evalue: BaseException | None, etraceback: TracebackType | None
    ) -> bool:
        return _expected(evalue)


def _name_of(path: Path) -> str:
    """The name of a file in the folder of its database; what lies in the folder of locks has that in its name."""
    return f"{path.parent.name}/{path.name}" if path.parent.name.endswith(".locks") else path.name


def _expected(error: BaseException | None) -> bool:
    """A fault that was injected without a caller, as in a close, needs no report."""
    return isinstance(error, apsw.Error)


# --- watchers -------------------------------------------------------------------------------------------------------


class Counts:
    """Counts the steps by kind, and the bytes written; `forget` starts anew."""

    def __init__(self) -> None:
        self._steps: Counter[type[Step]] = Counter()
        self.bytes = 0

    def __call__(self, step: Step) -> None:
        self._steps[type(step)] += 1
        if isinstance(step, Write):
            self.bytes += len(step.data)

    @property
    def syncs(self) -> int:
        return self._steps[Sync]

    @property
    def writes(self) -> int:
        return self._steps[Write]

    @property
    def changes(self) -> int:
        """The number of steps that change the disk."""
        return sum(self._steps[kind] for kind in CHANGES)

    def forget(self) -> None:
        self._steps.clear()
        self.bytes = 0


class Fault:
    """Makes the n-th step of some kinds fail, counted from 1 and from the moment it is armed: once, or from then on.

    `struck` counts the steps that failed. A tape gets failed syncs.
    """

    def __init__(self, kinds: Collection[type[Step]] = CHANGES, tape: "Tape | None" = None) -> None:
        self._kinds = tuple(kinds)
        self._tape = tape
        self._seen = 0
        self._from = self._to = 0
        self.struck = 0

    def __call__(self, step: Step) -> None:
        if not isinstance(step, self._kinds):
            return
        self._seen += 1
        if self._from <= self._seen < self._to:
            self.struck += 1
            if self._tape is not None and isinstance(step, Sync):
                self._tape.steps.append(LostSync(step.file))
            raise _io_error(step)

    def arm(self, number: int, *, lasting: bool = False) -> None:
        self._seen = 0
        self._from, self._to = number, 1 << 62 if lasting else number + 1

    def heal(self) -> None:
        self._from = self._to = 0


_RESULTS: dict[type[Step], int] = {
    Write: apsw.SQLITE_IOERR_WRITE,
    Sync: apsw.SQLITE_IOERR_FSYNC,
    Truncate: apsw.SQLITE_IOERR_TRUNCATE,
    Delete: apsw.SQLITE_IOERR_DELETE,
    Link: apsw.SQLITE_IOERR,
    Read: apsw.SQLITE_IOERR_READ,
}


def _io_error(step: Step) -> apsw.IOError:
    error = apsw.IOError(f"injected: {type(step).__name__} {step.file}")
    error.extendedresult = _RESULTS[type(step)]  # type: ignore[attr-defined]  # its stub forgets what its manual names
    return error


class Quota:
    """Limits the size of the disk to this number of bytes; None lifts the limit."""

    def __init__(self) -> None:
        self.limit: int | None = None
        self._sizes: dict[str, int] = {}

    def __call__(self, step: Step) -> None:
        match step:
            case Write(file=file, offset=offset, data=data):
                self._grow(file, offset + len(data))
            case Truncate(file=file, size=size):
                self._sizes[file] = min(size, self._sizes.get(file, 0))
            case Delete(file=file):
                self._sizes.pop(file, None)
            case _:
                pass

    @property
    def used(self) -> int:
        """The number of bytes that the files have grown to since the start."""
        return sum(self._sizes.values())

    def _grow(self, file: str, size: int) -> None:
        before = self._sizes.get(file, 0)
        if size <= before:
            return
        if self.limit is not None and self.used + size - before > self.limit:
            raise apsw.FullError("injected: the disk is full")
        self._sizes[file] = size


class Tape:
    """Records every step that changes the disk, with the marks of the test between them."""

    def __init__(self) -> None:
        self.steps: list[Recorded] = []

    def __call__(self, step: Step) -> None:
        if isinstance(step, CHANGES):
            self.steps.append(step)

    def mark(self, number: int) -> None:
        self.steps.append(Mark(number))


class Trap:
    """Calls a function just before the n-th step that would change the disk, such as one that kills the process."""

    def __init__(self, number: int, spring: Callable[[], None]) -> None:
        self._left, self._spring = number, spring

    def __call__(self, step: Step) -> None:
        if not isinstance(step, CHANGES):
            return
        self._left -= 1
        if self._left == 0:
            self._spring()
