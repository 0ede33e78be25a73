"""The possible contents of a disk after a power loss: every synced write, and any subset of later ones."""

import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests.simulated_disk import Delete, Link, LostSync, Mark, Read, Recorded, Sync, Truncate, Write

SECTOR = 512

Image = dict[str, bytes]
Pending = Write | Truncate
# Which of the unsynced writes to one file survive, in their order.
Fate = Callable[[Sequence[Pending]], Iterable[Pending]]


def nothing(_: Sequence[Pending]) -> Iterable[Pending]:
    """Every write since the last sync is lost."""
    return ()


def everything(pending: Sequence[Pending]) -> Iterable[Pending]:
    """Every write reached the disk, as after the death of a process."""
    return pending


def torn(seed: int) -> Fate:
    """Some writes are lost, some whole, some in part: sector by sector, in any order but the order of each sector."""
    dice = random.Random(seed)

    def fate(pending: Sequence[Pending]) -> Iterable[Pending]:
        chance = dice.choice([0.1, 0.5, 0.9, 0.99])
        for step in pending[: dice.randint(0, len(pending))] if dice.random() < 0.5 else pending:
            if isinstance(step, Truncate):
                if dice.random() < chance:
                    yield step
            else:
                yield from (part for part in _sectors(step) if dice.random() < chance)

    return fate


def _sectors(write: Write) -> Iterable[Write]:
    start = 0
    while start < len(write.data):
        size = SECTOR - (write.offset + start) % SECTOR
        yield Write(write.file, write.offset + start, write.data[start : start + size])
        start += size


class _File:
    def __init__(self) -> None:
        self.cached = bytearray()
        self.synced = bytearray()
        self.pending: list[Pending] = []
        self.listed = False  # whether its name in the directory would survive

    def write(self, step: Pending) -> None:
        _apply(self.cached, step)
        self.pending.append(step)

    def sync(self) -> None:
        self.synced = self.after(everything)
        self.pending.clear()

    def after(self, fate: Fate) -> bytearray:
        content = bytearray(self.synced)
        for step in fate(self.pending):
            _apply(content, step)
        return content


def _apply(content: bytearray, step: Pending) -> None:
    if isinstance(step, Truncate):
        del content[step.size :]
    else:
        content.extend(bytes(max(0, step.offset - len(content))))
        content[step.offset : step.offset + len(step.data)] = step.data


class Platter:
    """The disk as the steps left it so far. Deleted files come back if their directory was not synced since."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self._ghosts: dict[str, _File] = {}

    def turn(self, step: Recorded) -> None:
        """Apply one more step."""
        match step:
            case Write(file=file) | Truncate(file=file):
                self._files.setdefault(file, _File()).write(step)
            case LostSync(file=file):
                self._files.setdefault(file, _File()).pending.clear()
            case Sync(file=file):
                self._sync(self._files.setdefault(file, _File()))
            case Delete(file=file, lasting=lasting):
                self._delete(file, lasting=lasting)
            case Link(file=file, name=name):
                # Its owner has synced the directory, which decides nothing about the content of the file.
                self._files[name] = self._files[file]
                self._files[name].listed = True
            case Mark() | Read():
                pass

    def image(self, fate: Fate) -> Image:
        """The files as they may be after the power loss."""
        if fate is everything:
            return {name: bytes(file.cached) for name, file in self._files.items()}
        here = {name: file for name, file in self._files.items() if file.listed}
        return {name: bytes(file.after(fate)) for name, file in (self._ghosts | here).items()}

    def _sync(self, file: _File) -> None:
        file.sync()
        if not file.listed:
            # SQLite syncs the directory with the first sync of a log or journal that it made.
            self._sync_directory()

    def _sync_directory(self) -> None:
        self._ghosts.clear()
        for file in self._files.values():
            file.listed = True

    def _delete(self, name: str, *, lasting: bool) -> None:
        file = self._files.pop(name, None)
        if file is not None and file.listed:
            self._ghosts[name] = file
        if lasting:
            self._sync_directory()


def lay(image: Image, folder: Path) -> Path:
    """Write the image into a folder, as the disk that a machine starts from; where the database is."""
    folder.mkdir(parents=True)
    for name, content in image.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return folder / "store.db"
