"""The buffer between an agent and the disk: words said one after another become one body."""

from collections.abc import Sequence

import msgspec

from backstay.model.content import Body, Text, Thought

_size = msgspec.json.Encoder().encode


class Buffer:
    """What was said and not stored yet. Neighbouring words are joined, up to the size of a checkpoint."""

    def __init__(self, most: int) -> None:
        self.bytes = 0
        self._most = most
        self._bodies: list[Body] = []
        self._words: list[str] = []
        self._kind: type[Text | Thought] = Text
        self._joined = 0

    def add(self, body: Body) -> None:
        """Put something at the end."""
        if isinstance(body, Text | Thought):
            size = len(body.text.encode())
            if type(body) is not self._kind or self._joined + size > self._most:
                self._join()
            self._kind = type(body)
            self._words.append(body.text)
            self._joined += size
        else:
            size = len(_size(body))
            self._join()
            self._bodies.append(body)
        self.bytes += size

    def take(self) -> Sequence[Body]:
        """Empty the buffer."""
        self._join()
        taken, self._bodies, self.bytes = self._bodies, [], 0
        return taken

    def _join(self) -> None:
        if self._words:
            self._bodies.append(self._kind("".join(self._words)))
            self._words, self._joined = [], 0
