"""A proxy between a browser and a server that cuts event streams after a planned number of bytes."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

PATIENCE = 120.0


class ProxiedConnection:
    """One connection; `left` is the number of bytes of its response that still pass, if it is limited."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near, self.far = near, far
        self.left: int | None = None

    def answer(self) -> None:
        """Forward the response of the server, up to the limit."""
        with contextlib.suppress(OSError):
            while (self.left is None or self.left > 0) and (piece := self.far.recv(65_536)):
                self.near.sendall(piece if self.left is None else piece[: self.left])
                self.left = None if self.left is None else self.left - len(piece)
        self.cut()

    def cut(self) -> None:
        """Close it at both ends."""
        _break(self.near)
        _break(self.far)


def _break(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


class BreakingProxy:
    """Listens on its own port and forwards everything; cuts event streams as planned, then no more."""

    def __init__(self, target: int, cuts: Sequence[int]) -> None:
        self._target, self._cuts = target, list(cuts)
        self._whole = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets = [self._listener]
        self._threads: list[threading.Thread] = []
        self._start(self._listen)

    def wait(self) -> None:
        """Wait until every cut was made, and a further stream is open."""
        assert self._whole.wait(PATIENCE)

    def close(self) -> None:
        """Close the proxy."""
        for thread in self._threads:
            for one in list(self._sockets):
                _break(one)
            thread.join(PATIENCE)
            assert not thread.is_alive()
        for one in self._sockets:
            one.close()

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, name="breaking proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [near, far]
                connection = ProxiedConnection(near, far)
                self._start(self._ask, connection)
                self._start(connection.answer)

    def _ask(self, connection: ProxiedConnection) -> None:
        with contextlib.suppress(OSError):
            while piece := connection.near.recv(65_536):
                if piece.startswith(b"GET /api/events"):
                    connection.left = self._cuts.pop(0) if self._cuts else None
                    if connection.left is None:
                        self._whole.set()
                connection.far.sendall(piece)
        connection.cut()


@contextmanager
def breaking_proxy(target: int, cuts: Sequence[int]) -> Iterator[BreakingProxy]:
    """A proxy to this port; closed at the end."""
    proxy = BreakingProxy(target, cuts)
    try:
        yield proxy
    finally:
        proxy.close()
