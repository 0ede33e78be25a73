"""A census of what SQLite does: statements, steps of its machine, syncs, and bytes into the log.

It stands between SQLite and the disk as the default VFS, and at every connection that is opened meanwhile, so the store
is counted as it is, through the public door. Counting is slow: nothing may be timed meanwhile.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from operator import sub
from typing import Any

import apsw
import msgspec


class Census(msgspec.Struct):
    """What was counted so far."""

    statements: int = 0
    steps: int = 0
    log_syncs: int = 0
    file_syncs: int = 0
    log_bytes: int = 0

    @property
    def syncs(self) -> int:
        return self.log_syncs + self.file_syncs

    def since(self, earlier: "Census") -> "Census":
        """What was counted after the earlier copy was taken."""
        return Census(*map(sub, msgspec.structs.astuple(self), msgspec.structs.astuple(earlier)))

    def copy(self) -> "Census":
        return Census(*msgspec.structs.astuple(self))


@contextmanager
def counted(*, readers: bool = True) -> Iterator[Census]:
    """Count everything that connections opened inside the block do; without readers, only what can write."""
    census = Census()
    vfs = _CountingVfs(census)

    def watch(connection: apsw.Connection) -> None:
        if readers or not connection.readonly("main"):
            connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, lambda seen: _count_statement(census, seen), id="census")

    apsw.connection_hooks.append(watch)
    try:
        yield census
    finally:
        apsw.connection_hooks.remove(watch)
        vfs.unregister()


def _count_statement(census: Census, seen: dict[str, Any]) -> None:  # Any: apsw hands over a mixed dictionary
    census.statements += 1
    census.steps += seen["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]


class _CountingVfs(apsw.VFS):
    def __init__(self, census: Census) -> None:
        self._census = census
        self._base = apsw.vfs_names()[0]
        super().__init__("backstay-census", self._base, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _CountingFile(self._census, self._base, name, flags)


class _CountingFile(apsw.VFSFile):
    def __init__(self, census: Census, base: str, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._census = census
        self._log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)
        super().__init__(base, name, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._log:
            self._census.log_syncs += 1
        else:
            self._census.file_syncs += 1
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if self._log:
            self._census.log_bytes += len(data)
        super().xWrite(data, offset)
