"""Hints: notify other processes of a commit at once, and receive theirs. A process that misses one polls.

A hint is sent after the commit, outside of the transaction and its locks, and never waits. Lost, repeated and forged
hints are harmless: a hint only makes its receiver read the version.
"""

import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from backstay.store.sqlite.files.wake_sockets import Peers, SocketFolder, WakeSocket

# The minimum interval between two wake-ups of a process, however many hints arrive.
SPACING = 0.001
_ENDING_SECONDS = 5.0


class SocketHints:
    """The hints of one database file in this process. Without listeners it neither sends nor receives."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._changing = threading.Lock()
        self._link: _Link | None = None
        self._links = 0

    def add(self, listener: Callable[[], None]) -> None:
        """Call this once the socket is open, then from another thread when another process or store has committed."""
        with self._changing:
            self._listeners = (*self._listeners, listener)
            if self._link is not None:
                listener()
                return
            self._links += 1  # The name of a socket is used once.
            with suppress(RuntimeError, MemoryError):  # Without a thread, this process polls.
                self._link = _Link(self._folder, f"{self._name}.{self._links}", self._call_listeners)

    def remove(self, listener: Callable[[], None]) -> None:
        """Stop calling this."""
        with self._changing:
            self._listeners = tuple(one for one in self._listeners if one is not listener)
            if not self._listeners and self._link is not None:
                link, self._link = self._link, None
                link.close()

    def committed(self) -> None:
        """Send a hint, because this process has committed."""
        link = self._link
        if link is not None:
            link.send()
            # Several stores of a process share its writer and its socket. A single store needs no hint of them.
            if len(self._listeners) > 1:
                self._call_listeners()

    def sweep(self) -> None:
        """Remove the sockets of dead processes."""
        from backstay.store.sqlite.files.wake_sockets import sweep_sockets  # noqa: PLC0415

        sweep_sockets(self._folder)

    def forget(self) -> None:
        """In a forked child: close the parent's sockets. The parent still receives."""
        if self._link is not None:
            self._link.forget()
        self._link = None

    def _call_listeners(self) -> None:
        for listener in self._listeners:
            with suppress(Exception):  # A listener that fails polls; the others are still called.
                listener()


class _Sockets(NamedTuple):
    """The open sockets of this process."""

    folder: "SocketFolder"
    own: "WakeSocket"
    peers: "Peers"


class _Link:
    """The sockets of this process. A thread opens them, because the caller may be an event loop; then it receives."""

    def __init__(self, folder: Path, name: str, on_hint: Callable[[], None]) -> None:
        self._folder, self._name, self._on_hint = folder, name, on_hint
        self._sockets: _Sockets | None = None
        self._opening = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="backstay-hints", daemon=True)
        self._thread.start()

    def send(self) -> None:
        sockets = self._sockets
        if sockets is not None:
            sockets.peers.send()

    def close(self) -> None:
        with self._opening:
            self._closed.set()
            if self._sockets is not None:
                self._sockets.own.stop()
        self._thread.join(_ENDING_SECONDS)

    def forget(self) -> None:
        if self._sockets is not None:
            self._sockets.peers.forget()
            self._sockets.own.close()
            self._sockets.folder.close()

    def _run(self) -> None:
        # Where sockets cannot be opened, this process polls.
        with suppress(OSError), ExitStack() as opened:
            with self._opening:
                sockets = self._sockets = self._open(opened)
            # For commits before the sockets were open, here and elsewhere; also if this was closed meanwhile.
            sockets.peers.send()
            self._receive(sockets.own)

    def _open(self, opened: ExitStack) -> _Sockets:
        # A store that only one process uses needs no sockets.
        from backstay.store.sqlite.files.wake_sockets import Peers, SocketFolder, WakeSocket  # noqa: PLC0415

        folder = SocketFolder(self._folder)
        opened.callback(folder.close)
        own = WakeSocket(folder, self._name)
        opened.callback(own.close)
        opened.callback(own.stop)
        peers = Peers(folder, own.name)
        opened.callback(peers.close)
        return _Sockets(folder, own, peers)

    def _receive(self, own: "WakeSocket") -> None:
        while not self._closed.is_set():
            self._on_hint()
            self._closed.wait(SPACING)
            own.receive()
