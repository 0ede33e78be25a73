"""The installed command, run as a person or a script runs it: in a process of its own."""

import atexit
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from tests.databases import Place

COMMAND = Path(sysconfig.get_path("scripts"), "backstay")
# How long a test waits for what must happen; what works takes a hundredth of it.
PATIENCE = 120.0


class Told(NamedTuple):
    """What a command wrote, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # Any: whatever the command answers
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Tell = Callable[..., Told]


def environment(folder: Path, place: Place | None, **more: str) -> dict[str, str]:
    """A person with an empty home, nothing of ours in their environment, and the agents of these tests at hand."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("BACKSTAY_", "XDG_", "OPENAI_", "_BACKSTAY")) and name not in ("NO_COLOR", "COLUMNS")
    }
    own = {"HOME": str(folder), "TZ": "UTC", "LANG": "C.UTF-8", "PYTHONPATH": str(Path(__file__).parent)}
    return plain | own | ({} if place is None else {"BACKSTAY_DB": str(place)}) | more


def tell(folder: Path, place: Place | None, *arguments: str, stdin: bytes | None = None, **more: str) -> Told:
    """Run the command to its end."""
    told = nursery().run(arguments, folder, environment(folder, place, **more), stdin or b"")
    assert "Traceback" not in told.err, told.err
    return told


class Nursery:
    """The process that runs commands, each in a child of its own."""

    def __init__(self) -> None:
        self._asks, asked = socket.socketpair()
        self._asks.settimeout(PATIENCE)
        with asked:
            self._process = subprocess.Popen(
                [sys.executable, Path(__file__).with_name("nursery.py"), str(asked.fileno())],
                env=environment(Path("/"), None),
                pass_fds=[asked.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def run(self, arguments: Sequence[str], folder: Path, environment: dict[str, str], stdin: bytes) -> Told:
        """Run a command to its end, with files for its streams: whatever it writes, nobody waits for anybody."""
        order = {"arguments": arguments, "folder": str(folder), "environment": environment}
        with TemporaryFile() as said, TemporaryFile() as out, TemporaryFile() as err:
            said.write(stdin)
            said.seek(0)
            streams = [stream.fileno() for stream in (said, out, err)]
            socket.send_fds(self._asks, [b" "], streams)
            self._asks.sendall(json.dumps(order).encode() + b"\n")
            code = int(self._asks.recv(64))
            out.seek(0)
            err.seek(0)
            return Told(code, out.read().decode(), err.read().decode())

    def close(self) -> None:
        """Let it end."""
        self._asks.close()
        self._process.wait(PATIENCE)


@cache
def nursery() -> Nursery:
    """The one of this run."""
    made = Nursery()
    atexit.register(made.close)
    return made


@contextmanager
def running(folder: Path, place: Place, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """The command while it runs; killed at the end if it still does."""
    process = subprocess.Popen(
        [str(COMMAND), *arguments],
        cwd=folder,
        env=environment(folder, place, PYTHONUNBUFFERED="1"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def on_terminal(folder: Path, place: Place | None, *arguments: str, typed: bytes = b"", **more: str) -> Told:
    """Run the command on a terminal of its own, 100 columns wide; what both streams drew is in `out`."""
    child, terminal = pty.fork()
    if not child:
        os.chdir(folder)
        os.execve(COMMAND, [str(COMMAND), *arguments], environment(folder, place, COLUMNS="100", **more))
    drawn = b""
    try:
        os.write(terminal, typed)
        while True:
            ready, _, _ = select.select([terminal], [], [], PATIENCE)
            assert ready, drawn
            drawn += os.read(terminal, 65_536)
    except OSError:
        pass  # The other side is closed: the command has ended.
    finally:
        os.close(terminal)
        _, status = os.waitpid(child, 0)
    return Told(os.waitstatus_to_exitcode(status), drawn.decode().replace("\r\n", "\n"), "")


def interrupt(process: "subprocess.Popen[str]") -> Told:
    """Press Ctrl-C, and see how it ends."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in err, err
    return Told(process.returncode, out, err)
