"""PostgreSQL's protocol, parsed just enough to see where a transaction is committed."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

_LENGTH = struct.Struct("!I")
_SSL_REQUEST = 80877103
_GSS_REQUEST = 80877104
_ENDINGS = (b"COMMIT", b"END")


class Packet(NamedTuple):
    """One message with its bytes; what opens a connection has no kind."""

    kind: bytes
    body: bytes
    raw: bytes

    @property
    def asks_for_encryption(self) -> bool:
        """Whether a client requests encryption before anything else."""
        return not self.kind and _LENGTH.unpack(self.body[:4])[0] in (_SSL_REQUEST, _GSS_REQUEST)

    @property
    def asks_to_commit(self) -> bool:
        """Whether a client sends a COMMIT: alone, or as the last of several statements."""
        match self.kind:
            case b"Q":
                text = self.body.rstrip(b"\0")
            case b"P":
                text = self.body.split(b"\0")[1]
            case _:
                return False
        last = text.strip(b"; \n").rpartition(b";")[2]
        return last.strip().upper().startswith(_ENDINGS)

    @property
    def tells_of_commit(self) -> bool:
        """Whether the server reports a committed transaction."""
        return self.kind == b"C" and self.body == b"COMMIT\0"

    @property
    def tells_of_end(self) -> bool:
        """Whether the server reports that it is ready for the next request."""
        return self.kind == b"Z"


class Framing:
    """Cuts a stream of bytes into packets, as they become whole."""

    def __init__(self, *, opening: bool) -> None:
        self._buffer = bytearray()
        self._opening = opening

    def feed(self, data: bytes) -> Iterator[Packet]:
        """Every packet that these bytes complete."""
        self._buffer += data
        while (packet := self._next()) is not None:
            yield packet

    def _next(self) -> Packet | None:
        start = 0 if self._opening else 1
        if len(self._buffer) < start + 4:
            return None
        end = start + int(_LENGTH.unpack(self._buffer[start : start + 4])[0])
        if len(self._buffer) < end:
            return None
        raw = bytes(self._buffer[:end])
        del self._buffer[:end]
        packet = Packet(raw[:start], raw[start + 4 :], raw)
        self._opening = self._opening and packet.asks_for_encryption
        return packet
