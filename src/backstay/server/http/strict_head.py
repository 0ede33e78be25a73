"""Strict parsing of HTTP/1.1 request heads, so that no other server or proxy interprets a head differently.

h11 limits the size of a head only while it is incomplete. It also tolerates bare line feeds, folded headers and two
statements of the body length. Servers with different tolerance can be made to see different requests (request
smuggling).
"""

import re

import h11
from h11._receivebuffer import ReceiveBuffer

_END = re.compile(rb"\A\r?\n|\n\r?\n")
_OTHER_LINE_END = re.compile(rb"(?<!\r)\n|\r(?!\n)")
_FOLD = re.compile(rb"\r\n[ \t]")
_LENGTH = re.compile(rb"^(content-length|transfer-encoding)[ \t]*:", re.IGNORECASE | re.MULTILINE)
_OLD_PROTOCOL = re.compile(rb"\A[^\r\n]* HTTP/1\.0\r\n")


def strict_connection(head_bytes: int) -> h11.Connection:
    """The server's side of a connection, whose heads are limited to this many bytes."""
    connection = _ResponseConnection(h11.SERVER, head_bytes)
    # h11 has no public way to replace its buffer. The parsing tests fail if it no longer uses this attribute.
    connection._receive_buffer = StrictBuffer(head_bytes)  # noqa: SLF001
    return connection


class _ResponseConnection(h11.Connection):
    """Sends the head of a response together with its first bytes: one write, and the client wakes up once."""

    _head: tuple[bytes, ...] = ()

    def send_with_data_passthrough(self, event: h11.Event) -> list[bytes] | None:
        """The pieces to send now. Those of a response head come with the next event."""
        pieces = super().send_with_data_passthrough(event)
        if isinstance(event, h11.Response):
            self._head = tuple(pieces or ())
            return []
        head, self._head = self._head, ()
        return None if pieces is None else [*head, *pieces]


class StrictBuffer(ReceiveBuffer):
    """The receive buffer of h11, which extracts request heads, and trailers after a chunked body, as lines."""

    def __init__(self, head_bytes: int) -> None:
        super().__init__()
        self._head_bytes = head_bytes

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """The lines up to the first empty one, if that has arrived.

        Raises:
            h11.RemoteProtocolError: The lines are too long or ambiguous.
        """
        end = _END.search(self._data)
        if end is not None:
            self._check(bytes(self._data[: end.end()]))
        return super().maybe_extract_lines()

    def _check(self, head: bytes) -> None:
        if len(head) > self._head_bytes:
            raise h11.RemoteProtocolError("the request head is too large", error_status_hint=431)
        if _OTHER_LINE_END.search(head):
            raise h11.RemoteProtocolError("a line does not end in CRLF")
        if _FOLD.search(head):
            raise h11.RemoteProtocolError("a header is folded")
        lengths = {name.lower() for name in _LENGTH.findall(head)}
        if len(lengths) > 1:
            raise h11.RemoteProtocolError("both Content-Length and Transfer-Encoding")
        if b"transfer-encoding" in lengths and _OLD_PROTOCOL.match(head):
            raise h11.RemoteProtocolError("Transfer-Encoding in HTTP/1.0")
