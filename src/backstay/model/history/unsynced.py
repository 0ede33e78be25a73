"""Output that was stored without a sync. Its holder keeps it in memory, in case the database loses it in a crash."""

from sys import getsizeof

from backstay.model.content import Text, Thought

Words = tuple[Text | Thought, ...]

# A holder keeps about this many bytes at most; then its next checkpoint is synced.
UNSYNCED_BYTES = 1 << 20
# The size of a body besides its text.
_OVERHEAD = 128


class Unsynced:
    """The output of the checkpoints since the last synced write, oldest first. Immutable.

    A long stream adds to it with every checkpoint. To avoid copies, successive values share one list that only grows;
    each knows how much of it is its own. `size` is the memory of its texts.
    """

    __slots__ = ("_length", "_log", "size")

    def __init__(self, log: list[tuple[int, Words]], length: int, size: int) -> None:
        self._log, self._length, self.size = log, length, size

    def plus(self, after: int, words: Words) -> "Unsynced":
        """This value with one more checkpoint. `after` is the holder's event number before it."""
        log, length, size = self._log, self._length, self.size
        # Copy the list if it is the shared empty one, or if another value has already grown from this one.
        if not length or len(log) > length:
            log = log[:length]
        log.append((after, words))
        for body in words:
            size += getsizeof(body.text) + _OVERHEAD
        return Unsynced(log, length + 1, size)

    def since(self, number: int) -> list[tuple[int, Words]]:
        """The checkpoints after the holder's event with this number, each with the event number before it."""
        return [entry for entry in self._log[: self._length] if entry[0] >= number]

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unsynced) and self.since(0) == other.since(0)

    def __hash__(self) -> int:
        return hash((self._length, self.size))

    def __repr__(self) -> str:
        return f"<{self._length} checkpoints, {self.size} bytes>"


SYNCED = Unsynced([], 0, 0)
