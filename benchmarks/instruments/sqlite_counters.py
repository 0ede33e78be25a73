"""Counts the work of SQLite: statements, steps of its machine, syncs, and bytes into the log.

It sits between SQLite and the disk as the default VFS, and on every connection that is opened meanwhile, so the store
is counted unchanged, through its public interface. Counting is slow: do not measure time meanwhile.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from operator import sub
from typing import Any

import apsw
import msgspec


class SqliteCounters(msgspec.Struct):
    """The counts so far."""

    statements: int = 0
    steps: int = 0
    log_syncs: int = 0
    file_syncs: int = 0
    log_bytes: int = 0

    @property
    def syncs(self) -> int:
        return self.log_syncs + self.file_syncs

    def since(self, earlier: "SqliteCounters") -> "SqliteCounters":
        """The difference from an earlier copy."""
        return SqliteCounters(*map(sub, msgspec.structs.astuple(self), msgspec.structs.astuple(earlier)))

    def copy(self) -> "SqliteCounters":
        return SqliteCounters(*msgspec.structs.astuple(self))


@contextmanager
def counted(*, readers: bool = True) -> Iterator[SqliteCounters]:
    """Count the work of all connections opened inside the block; without `readers`, only of those that can write."""
    counters = SqliteCounters()
    vfs = _CountingVfs(counters)

    def watch(connection: apsw.Connection) -> None:
        if readers or not connection.readonly("main"):
            connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, lambda seen: _count_statement(counters, seen), id="counters")

    apsw.connection_hooks.append(watch)
    try:
        yield counters
    finally:
        apsw.connection_hooks.remove(watch)
        vfs.unregister()


def _count_statement(counters: SqliteCounters, seen: dict[str, Any]) -> None:  # Any: apsw hands over a mixed dictionary
    counters.statements += 1
    counters.steps += seen["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]


class _CountingVfs(apsw.VFS):
    def __init__(self, counters: SqliteCounters) -> None:
        self._counters = counters
        self._base = apsw.vfs_names()[0]
        super().__init__("backstay-counters", self._base, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _CountingFile(self._counters, self._base, name, flags)


class _CountingFile(apsw.VFSFile):
    def __init__(
        self, counters: SqliteCounters, base: str, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._counters = counters
        self._log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)
        super().__init__(base, name, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._log:
            self._counters.log_syncs += 1
        else:
            self._counters.file_syncs += 1
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if self._log:
            self._counters.log_bytes += len(data)
        super().xWrite(data, offset)
