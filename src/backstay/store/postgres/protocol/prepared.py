"""The statements that a connection has prepared: the server parses and plans each of them once."""

# There are fewer statements, with all combinations of the types of their parameters. More would be a defect.
MOST = 1_000

Key = tuple[bytes, tuple[int, ...]]


class PreparedStatements:
    """The names of prepared statements, by their text and the types of their parameters.

    A name is never given twice: a statement that the server has skipped keeps its name unused.
    """

    __slots__ = ("_given", "_names", "kept")

    def __init__(self) -> None:
        self.kept = False
        """Whether the server keeps prepared statements from one transaction of this connection to the next."""
        self._names: dict[Key, bytes] = {}
        self._given = 0

    def name_of(self, key: Key) -> bytes | None:
        """The name of a statement that the server has."""
        return self._names.get(key)

    def new_name(self) -> bytes | None:
        """A name for a statement that is to be prepared, or None if preparing it is not worth it."""
        if not self.kept or self._given >= MOST:
            return None
        self._given += 1
        return b"backstay_%d" % self._given

    def add(self, key: Key, name: bytes) -> None:
        """Note that the server has prepared a statement."""
        self._names[key] = name
