"""Commands that are forked from a process that has loaded the command line; see `fork_server.py`."""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple, TextIO

# How long a test waits for an event; a working program needs a hundredth of it.
PATIENCE = 120.0


class Finished(NamedTuple):
    """The exit status and the output of a command."""

    code: int
    out: bytes
    err: bytes


class ForkedCommand:
    """A command that runs, with as much of `subprocess.Popen` as tests use."""

    def __init__(self, report: TextIO, stdout: TextIO | None = None) -> None:
        self._report = report
        self.stdout = stdout
        self.pid = int(report.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """How it ended, if it has."""
        return self._look(0.0)

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: It still runs.
        """
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it with SIGKILL, as the kernel does when memory runs out."""
        self.send_signal(signal.SIGKILL)

    def _look(self, seconds: float) -> int | None:
        if self.returncode is None and select.select([self._report], [], [], seconds)[0]:
            self.returncode = int(self._report.readline())
            self._report.close()
        return self.returncode


class ForkServer:
    """The process from which commands are forked, each into a child of its own."""

    def __init__(self) -> None:
        self._asks, asked = socket.socketpair()
        self._asks.settimeout(PATIENCE)
        with asked:
            self._process = subprocess.Popen(
                [sys.executable, Path(__file__).with_name("fork_server.py"), str(asked.fileno())],
                pass_fds=[asked.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def run(self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], stdin: bytes) -> Finished:
        """Run a command to its end, with files for its streams, so that no write blocks."""
        with TemporaryFile() as said, TemporaryFile() as out, TemporaryFile() as err:
            said.write(stdin)
            said.seek(0)
            self._order(arguments, folder, environment, [stream.fileno() for stream in (said, out, err)])
            code = int(self._asks.recv(64))
            out.seek(0)
            err.seek(0)
            return Finished(code, out.read(), err.read())

    def start(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        streams: tuple[int, int, int],
        *,
        stdout: TextIO | None = None,
        terminal: bool = False,
    ) -> ForkedCommand:
        """Start a command with these standard streams; `terminal`: the first one becomes its own terminal.

        `stdout` is the other end of its standard output, if the caller wants to read it.
        """
        ours, theirs = os.pipe()
        try:
            self._order(arguments, folder, environment, [*streams, theirs], terminal=terminal)
        finally:
            os.close(theirs)
        return ForkedCommand(os.fdopen(ours, buffering=1), stdout)

    def _order(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        streams: list[int],
        *,
        terminal: bool = False,
    ) -> None:
        order = {
            "arguments": arguments,
            "folder": str(folder),
            "environment": dict(environment),
            "terminal": terminal,
        }
        socket.send_fds(self._asks, [b" "], streams)
        self._asks.sendall(json.dumps(order).encode() + b"\n")

    def close(self) -> None:
        """Let it end."""
        self._asks.close()
        self._process.wait(PATIENCE)


@cache
def fork_server() -> ForkServer:
    """The fork server of this test run."""
    made = ForkServer()
    atexit.register(made.close)
    return made
