"""Server-sent events: the data of each, from bytes that arrive in any pieces.

Works on bytes and does not ask for a content type, because servers send a wrong one, or a wrong charset, and stream
correctly all the same. Only the line ends of the standard divide lines: text may hold every other kind.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator

# A carriage return at the very end may be the first half of a pair: it waits for what follows.
_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")


class EventTooLarge(Exception):
    """An event is larger than the limit."""


async def events(chunks: AsyncIterator[bytes], limit: int) -> AsyncGenerator[bytes, None]:
    """The data of each event. One whose closing empty line never came is left out: it was cut off."""
    lines = _Lines()
    data: list[bytes] = []
    async for chunk in chunks:
        for line in lines.feed(chunk):
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield b"\n".join(data)
                data = []
        if lines.waiting + sum(map(len, data)) > limit:
            raise EventTooLarge


class _Lines:
    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def waiting(self) -> int:
        """Bytes of a line whose end has not come."""
        return len(self._rest)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that end in this chunk. What was there before ends no line, except by a carriage return."""
        begin, search = 0, max(0, len(self._rest) - 1)
        self._rest += chunk
        while found := _LINE_END.search(self._rest, search):
            yield bytes(self._rest[begin : found.start()])
            begin = search = found.end()
        del self._rest[:begin]
