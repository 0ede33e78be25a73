"""A server process of a test run, with a watchdog, so that none is left behind."""

import json
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.postgres_servers.unprivileged_account import Account

WATCHDOG = Path(__file__).with_name("watchdog.py")
# How long a server may take to start; a busy machine needs a tenth of it.
PATIENCE = 120.0


class ServerFailed(Exception):
    """A server ended before it was ready; the end of its log says why."""


class Daemon:
    """A program that runs until it is closed, or until this process is gone, however that happens.

    `ready` is a part of the line on its error stream that says that it serves.
    """

    def __init__(
        self,
        command: list[str],
        *,
        account: Account,
        log: Path,
        ready: str,
        stop: signal.Signals = signal.SIGQUIT,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.log = log
        self._words: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self._ended = threading.Event()
        order = {
            "command": command,
            "account": account.drop(),
            "environment": environment or {},
            "log": str(log),
            "ready": ready,
            "stop": stop.name,
        }
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", str(WATCHDOG), json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._listening = threading.Thread(target=self._listen, args=(self._watchdog.stdout,), daemon=True)
        self._listening.start()
        self.pid = self._await_ready()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, which: signal.Signals) -> None:
        """Send it a signal; none if it is gone."""
        assert self._watchdog.stdin is not None, "it is a pipe"
        self._watchdog.stdin.write(f"{which.name}\n")
        self._watchdog.stdin.flush()

    def end(self, how: signal.Signals) -> None:
        """End it with a signal; return when it has ended."""
        self.send(how)
        assert self._ended.wait(PATIENCE), f"{how.name} does not end it: {self.tail()}"

    def close(self) -> None:
        """Stop it at once; return when it has ended."""
        assert self._watchdog.stdin is not None, "it is a pipe"
        assert self._watchdog.stdout is not None, "it is a pipe"
        self._watchdog.stdin.close()
        self._watchdog.wait(PATIENCE)
        self._listening.join(PATIENCE)
        self._watchdog.stdout.close()

    def tail(self) -> str:
        """The end of what it wrote to its log."""
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""

    # --- the watchdog -----------------------------------------------------------------------------------------------

    def _listen(self, stream: IO[str]) -> None:
        for line in stream:
            words = line.split()
            if words[0] == "ended":
                self._ended.set()
            self._words.put(words)
        self._ended.set()
        self._words.put(["ended"])

    def _await_ready(self) -> int:
        try:
            words = self._words.get(timeout=PATIENCE)
        except queue.Empty:
            words = ["silent"]
        if words[0] == "ready":
            return int(words[1])
        tail = self.tail()
        self.close()
        raise ServerFailed(f"{words[0]} before it was ready:\n{tail}")
