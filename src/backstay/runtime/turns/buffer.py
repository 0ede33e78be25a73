"""The buffer between an agent and the database. It joins consecutive deltas of one kind into one body."""

from collections.abc import Sequence

import msgspec

from backstay.model.content import Body, Text, Thought

_size = msgspec.json.Encoder().encode


class Buffer:
    """Output that is not stored yet. Consecutive texts (or thoughts) are joined, up to `most` bytes."""

    def __init__(self, most: int) -> None:
        self.bytes = 0
        self._most = most
        self._bodies: list[Body] = []
        self._texts: list[str] = []
        self._kind: type[Text | Thought] = Text
        self._joined = 0

    def add(self, body: Body) -> None:
        """Append a body."""
        if isinstance(body, Text | Thought):
            size = len(body.text.encode())
            if type(body) is not self._kind or self._joined + size > self._most:
                self._join()
            self._kind = type(body)
            self._texts.append(body.text)
            self._joined += size
        else:
            size = len(_size(body))
            self._join()
            self._bodies.append(body)
        self.bytes += size

    def take(self) -> Sequence[Body]:
        """Empty the buffer and return its bodies."""
        self._join()
        taken, self._bodies, self.bytes = self._bodies, [], 0
        return taken

    def put_back(self, bodies: Sequence[Body]) -> None:
        """Put bodies that were taken but could not be stored back at the front."""
        later = self.take()
        for body in (*bodies, *later):
            self.add(body)

    def _join(self) -> None:
        if self._texts:
            self._bodies.append(self._kind("".join(self._texts)))
            self._texts, self._joined = [], 0
