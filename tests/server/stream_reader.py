"""A reader of event streams on a bare socket: it sees every byte, and can be cut off after any of them."""

import json
import socket
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

PATIENCE = 120.0


class Frame(NamedTuple):
    """One event of the wire."""

    name: str
    data: dict[str, Any]
    id: str | None


class Reader:
    """One connection to /api/events, after the given last id."""

    def __init__(
        self, port: int, token: str, query: str, last_id: str | None = None, *, receive_buffer: int | None = None
    ) -> None:
        self._socket = socket.socket()
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.settimeout(PATIENCE)
        self._socket.connect(("127.0.0.1", port))
        resumed = f"Last-Event-ID: {last_id}\r\n" if last_id else ""
        self._socket.sendall(
            f"GET /api/events?{query} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
            f"Accept: text/event-stream\r\n{resumed}\r\n".encode()
        )
        self._raw = b""
        self.status, self.headers = self._head()
        self._text = b""
        self.ended = False
        self.comments: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def close(self) -> None:
        """Leave."""
        self._socket.close()

    def frames(self, most_bytes: int | None = None) -> Iterator[Frame]:
        """Frames as they arrive; ends with the stream, or after this number of bytes of it."""
        heard = 0
        while True:
            yield from self._whole_frames()
            piece = self._chunk(None if most_bytes is None else most_bytes - heard)
            if piece is None:
                self.ended = True
                return
            heard += len(piece)
            self._text += piece
            if most_bytes is not None and heard >= most_bytes:
                yield from self._whole_frames()
                return

    def until(self, name: str, **parts: Any) -> list[Frame]:
        """All frames up to the first with this name whose data, or the body in it, has these parts."""
        heard = []
        for frame in self.frames():
            heard.append(frame)
            whole = frame.data | frame.data.get("body", {})
            if frame.name == name and all(whole.get(key) == value for key, value in parts.items()):
                return heard
        raise AssertionError(f"the stream ended without {name} {parts}: {heard}")

    def wait_for_bytes(self, wanted: bytes) -> None:
        """Until these bytes have arrived; the frames they are part of are still to be read."""
        while wanted not in self._raw and wanted not in self._text:
            assert self._more(), "the connection was closed"

    def body(self) -> dict[str, Any]:
        """The body of a response that is not a stream."""
        told: dict[str, Any] = json.loads(self._exactly(int(self.headers["content-length"])))
        return told

    def _whole_frames(self) -> Iterator[Frame]:
        while b"\n\n" in self._text:
            block, _, self._text = self._text.partition(b"\n\n")
            frame = self._frame(block.decode())
            if frame is not None:
                yield frame

    def _frame(self, block: str) -> Frame | None:
        lines = block.split("\n")  # and not at other Unicode line ends
        fields = dict(line.split(": ", 1) for line in lines if not line.startswith(":"))
        self.comments += [line for line in lines if line.startswith(":")]
        if "data" not in fields:
            return None
        return Frame(fields["event"], json.loads(fields["data"]), fields.get("id"))

    # --- HTTP -------------------------------------------------------------------------------------------------------

    def _head(self) -> tuple[int, dict[str, str]]:
        lines = []
        while line := self._line():
            lines.append(line.decode())
        status = int(lines[0].split()[1])
        return status, {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}

    def _line(self) -> bytes:
        while b"\r\n" not in self._raw:
            if not self._more():
                raise ConnectionError("the connection was closed")
        line, _, self._raw = self._raw.partition(b"\r\n")
        return line

    def _chunk(self, most: int | None) -> bytes | None:
        """The next piece of the chunked body; None at its end, or when the connection is gone."""
        try:
            size = int(self._line() or b"0", 16)
            piece = self._exactly(size)
            if size and (most is None or size < most):
                self._line()
        except (ConnectionError, ValueError):
            return None
        return (piece if most is None else piece[:most]) or None

    def _exactly(self, size: int) -> bytes:
        while len(self._raw) < size:
            if not self._more():
                raise ConnectionError("the connection was closed")
        piece, self._raw = self._raw[:size], self._raw[size:]
        return piece

    def _more(self) -> bool:
        got = self._socket.recv(65_536)
        self._raw += got
        return bool(got)
