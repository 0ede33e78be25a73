"""Parses server-sent events: yields the data of each, from bytes in chunks of any size.

Works on bytes and ignores the content type, because some servers send a wrong type or charset with a correct stream.
Only the line ends of the standard separate lines: text may contain every other kind.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator

# A carriage return at the very end may be the first half of a CR LF pair: wait for the next byte.
_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")


class EventTooLarge(Exception):
    """An event is larger than the limit."""


async def events(chunks: AsyncIterator[bytes], limit: int) -> AsyncGenerator[bytes, None]:
    """Yield the data of each event. An event without its closing empty line is dropped: it was cut off.

    Raises:
        EventTooLarge: An event is larger than `limit` bytes.
    """
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
        """The number of bytes of the incomplete line."""
        return len(self._rest)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that end in this chunk. The bytes before it are not searched again, except a last CR."""
        begin, search = 0, max(0, len(self._rest) - 1)
        self._rest += chunk
        while found := _LINE_END.search(self._rest, search):
            yield bytes(self._rest[begin : found.start()])
            begin = search = found.end()
        del self._rest[:begin]
