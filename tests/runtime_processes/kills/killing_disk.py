"""A disk that kills its process just before the n-th change of a file."""

from collections.abc import Callable

import apsw


class MortalDisk(apsw.VFS):
    """The machine's own disk, under which everything in this process opens its files from now on."""

    def __init__(self, number: int, die: Callable[[], None]) -> None:
        self.base = apsw.vfs_names()[0]
        self._left, self._die = number, die
        self.changes = 0
        super().__init__("mortal", base=self.base, makedefault=True)

    def change(self) -> None:
        """Called before a file changes; may kill the process."""
        self.changes += 1
        self._left -= 1
        if self._left == 0:
            self._die()

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _MortalFile(self, name, flags)


class _MortalFile(apsw.VFSFile):
    def __init__(self, disk: MortalDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        super().__init__(disk.base, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.change()
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.change()
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.change()
        super().xTruncate(newsize)
