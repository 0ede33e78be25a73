"""A worker process: one peer, commanded by JSON lines over a pipe."""

import os
import select
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from benchmarks.peers.catalog import ROOT, Peer

ANSWER_SECONDS = 300.0


class WorkerFailed(Exception):
    """The worker ended, or did not answer in time."""


class WorkerProcess:
    """Starts a worker, without waiting for it, and sends it one command at a time."""

    def __init__(
        self, peer: Peer, python: Path, log: Path, *, under: Sequence[str] = (), watched: bool = False
    ) -> None:
        self.peer = peer
        self._log = log
        command = [*under, str(python), "-m", "benchmarks.peers.worker", peer.adapter, peer.variant]
        command += ["watched"] if watched else []
        # Peers may look for configuration below HOME, and send telemetry unless it is switched off.
        environment = os.environ | {"PYTHONPATH": str(ROOT), "HOME": str(log.parent), "AGNO_TELEMETRY": "false"}
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        self._pending = b""
        self._ready = False

    def send(self, do: str, **arguments: object) -> None:
        """Send a command; `receive` returns its answer."""
        if self._process.stdin is None:
            raise WorkerFailed("the pipe is closed")
        try:
            self._process.stdin.write(msgspec.json.encode({"do": do, **arguments}) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise WorkerFailed(self._last_words()) from error

    def receive(self) -> dict[str, Any]:
        """Wait for the next answer.

        Raises:
            WorkerFailed: The worker ended, or did not answer in time.
        """
        if not self._ready:
            self._next_line()
            self._ready = True
        answer: dict[str, Any] = msgspec.json.decode(self._next_line())
        return answer

    def _next_line(self) -> bytes:
        if self._process.stdout is None:
            raise WorkerFailed("the pipe is closed")
        while b"\n" not in self._pending:
            ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_SECONDS)
            chunk = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
            if not chunk:
                raise WorkerFailed(self._last_words())
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def ask(self, do: str, **arguments: object) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self.send(do, **arguments)
        return self.receive()

    def close(self) -> None:
        """Close the pipe, so that the worker closes its store and ends."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "the worker ended without a message"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()
