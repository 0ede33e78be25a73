"""The wake sockets beside a database: each listening process has one, and the others send datagrams to it.

They lie in the folder of the locks. A socket outlives a killed process as a file that refuses datagrams; the first
process that finds it removes it. Its name is never used again, so a living socket is never removed by mistake.
"""

import os
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

from backstay.store.sqlite.files.file_locks import close_handle

# More processes than this poll: a commit must not cost more for each further one.
MOST_PEERS = 32
PREFIX = "wake_"
# A socket has another name until it can receive. Meanwhile it would refuse datagrams, and count as abandoned.
_UNPUBLISHED = "bind_"
_MODE = 0o600
# The content does not matter: a datagram only means that the version should be read.
_HINT = b"!"
# A flood of datagrams must not keep the receiver from its work.
_AT_ONCE = 1_000
# The address of a socket has at most 108 bytes on Linux, 104 elsewhere.
_LONGEST_ADDRESS = 100
# The time of a folder has the resolution of the kernel's clock tick, which is at most 10 ms.
_TICK_NS = 20_000_000


class SocketFolder:
    """The folder of the sockets, with addresses that fit however long its path is."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def address(self, name: str) -> str:
        """The address of a socket in this folder. A long path is replaced by that of our handle on the folder."""
        address = str(self.path / name)
        return address if len(os.fsencode(address)) <= _LONGEST_ADDRESS else f"/proc/self/fd/{self._fd}/{name}"

    def names(self) -> list[str]:
        """The names of all sockets that can receive."""
        return sorted(path.name for path in self.path.glob(f"{PREFIX}*"))

    def close(self) -> None:
        """Close the handle."""
        close_handle(self._fd)


class WakeSocket:
    """The socket on which this process receives.

    Raises:
        OSError: The system or the file system has no such sockets.
    """

    def __init__(self, folder: SocketFolder, name: str) -> None:
        self.name = f"{PREFIX}{name}"
        self._path = folder.path / self.name
        self._socket = _datagram_socket()
        try:
            unpublished = f"{_UNPUBLISHED}{name}"
            self._socket.bind(folder.address(unpublished))
            (folder.path / unpublished).chmod(_MODE)
            (folder.path / unpublished).rename(self._path)
        except BaseException:
            self._socket.close()
            raise

    def receive(self) -> None:
        """Wait for a datagram, or for `stop`. Further ones that have arrived are received with it."""
        self._socket.recv(1)
        with suppress(BlockingIOError):
            for _ in range(_AT_ONCE):
                self._socket.recv(1, socket.MSG_DONTWAIT)

    def stop(self) -> None:
        """Remove the socket from its folder, and end `receive` on whichever thread runs it."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close this process's handle; in a forked child, the parent still receives."""
        self._socket.close()


class Peers:
    """The sockets of other processes.

    A commit costs one `stat` as long as the folder is unchanged, and one datagram for each other process.
    """

    def __init__(self, folder: SocketFolder, own: str) -> None:
        self._folder, self._own = folder, own
        self._socket = _datagram_socket()
        self._socket.setblocking(False)
        self._names: list[str] = []
        self._listed = -1
        self._sending = threading.Lock()

    def send(self) -> None:
        """Send a hint to each peer. Never waits and never raises: a peer that misses it polls."""
        with self._sending, suppress(OSError):
            self._list_if_changed()
            for name in self._names:
                self._send_to(name)

    def close(self) -> None:
        """Close the socket."""
        with self._sending:
            self._socket.close()

    def forget(self) -> None:
        """In a forked child: close the socket. Another thread of the parent may have been sending."""
        self._socket.close()

    def _list_if_changed(self) -> None:
        changed = os.stat(self._folder.path).st_mtime_ns  # noqa: PTH116  # after every commit: twice as fast
        if changed != self._listed:
            self._names = [name for name in self._folder.names() if name != self._own][:MOST_PEERS]
            # A folder that has just changed can change once more and keep its time.
            self._listed = changed if time.time_ns() - changed > _TICK_NS else -1

    def _send_to(self, name: str) -> None:
        with suppress(OSError):  # It was closed, or has not yet received earlier hints.
            try:
                self._socket.sendto(_HINT, self._folder.address(name))
            except ConnectionRefusedError:
                (self._folder.path / name).unlink(missing_ok=True)


def sweep_sockets(folder: Path) -> None:
    """Remove the sockets of dead processes."""
    with suppress(OSError):
        sockets = SocketFolder(folder)
        try:
            for prefix in (PREFIX, _UNPUBLISHED):
                for path in folder.glob(f"{prefix}*"):
                    _remove_refusing(sockets, path.name)
        finally:
            sockets.close()


def _remove_refusing(folder: SocketFolder, name: str) -> None:
    with _datagram_socket() as probe, suppress(OSError):
        try:
            probe.connect(folder.address(name))
        except ConnectionRefusedError:
            (folder.path / name).unlink(missing_ok=True)


def _datagram_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
